"""The command line: one thin module a verb, and the reports. Computes nothing that another room could."""
