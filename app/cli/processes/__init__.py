"""One module per process of the server: it reads the settings and calls one composition root."""
