"""The commands: ``minikafka-broker``, and ``minikafka`` with one module per subcommand."""
