"""What may go wrong around a call, done on purpose; afterwards everything is as with an undisturbed twin."""
