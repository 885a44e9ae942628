"""What the handlers of several APIs share."""
