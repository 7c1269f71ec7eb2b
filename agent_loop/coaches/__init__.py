"""Coaches: what makes proposals. `choose.make_coach` turns a name into one; each module holds one kind."""
