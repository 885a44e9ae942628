"""The documents of ``apis.diagnostics``, each kind in a module of its own."""
