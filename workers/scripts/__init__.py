"""The host of a script job: our process that runs a user's command, and reports for it. Standard library only.

A script must start within milliseconds, and the host runs as the script's user: it parses nothing but JSON, and loads
neither pydantic nor numpy. `host.main` is what the launcher calls; docs/scripts-contract.md says what a script gets.
"""
