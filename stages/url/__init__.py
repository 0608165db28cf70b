"""URLs: hosts, lists of hosts and URLs, and the domains of the mixture that hosts belong to."""
