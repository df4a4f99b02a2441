"""Real clients and real brokers, directly and through Sidefetch: no difference may be observable."""
