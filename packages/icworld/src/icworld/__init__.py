"""Not built yet: this distribution holds its name, and the README says what will be here."""
