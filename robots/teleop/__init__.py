"""What a person (or a script) moves the arm with: GELLO, space mouse, keyboard, guiding by hand, the demonstrator."""
