"""What several commands use: options and errors, the admin client, profiles, quantities."""
