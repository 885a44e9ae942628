"""What happens in a simulated cluster: drawn from a seed as data (``plan``), then carried out, then
checked."""
