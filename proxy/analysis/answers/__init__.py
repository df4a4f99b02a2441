"""What can be asked of the ledgers: functions of frames, each with the columns that it answers in."""
