"""What `aileron demo` needs beside the program itself: a hostile connector, and in the wheel a copy of connectors/caldav."""
