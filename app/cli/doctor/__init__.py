"""`trainshed doctor`: looks at all that the service needs on this host, and says what is wrong and what to do."""
