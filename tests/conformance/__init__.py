"""Real clients and real brokers, directly and through Sidefetch: nobody may be able to tell the difference."""
