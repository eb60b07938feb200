"""Which clients may connect and what they may do: passwords, SCRAM, JWT, ACLs, TLS."""
