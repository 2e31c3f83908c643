"""The parts of `aileron demo` beside the program itself: a hostile connector, and in the wheel a copy of connectors/caldav."""
