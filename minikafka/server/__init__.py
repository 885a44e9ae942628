"""The async shell: the only place where the packages below meet. ``broker.py`` is the composition root."""
