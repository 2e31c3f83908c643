"""Data files of `aileron demo`: a hostile connector and, in the wheel, a copy of connectors/caldav."""
