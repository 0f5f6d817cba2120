"""Each of the five systems, line by line: a test is named after the number of the behaviour that it shows."""
