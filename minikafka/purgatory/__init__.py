"""Operations that wait for something or for a deadline, whichever comes first."""
