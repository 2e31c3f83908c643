"""Any SQL, by pg8000 and PyMySQL, unmodified. The user name and the password are placeholders."""

from aileron_connector import hosts, op, run


def _port(of: str) -> int:
    """Return the server's port: both listen on one host, PostgreSQL first."""
    return hosts()[0 if of == "postgres" else 1].port


def _postgres(sql: str) -> list:
    import pg8000.dbapi

    connection = pg8000.dbapi.connect(user="any", password="any", host="localhost", port=_port("postgres"), timeout=20)
    return _carry_out(connection, sql, pg8000.dbapi.Error)


def _mysql(sql: str) -> list:
    import pymysql

    connection = pymysql.connect(user="any", password="any", host="localhost", port=_port("mysql"), connect_timeout=20)
    return _carry_out(connection, sql, pymysql.err.Error)


def _carry_out(connection, sql: str, error_kind) -> list:
    """Execute each line as a statement. Return the rows of each, up to the first error, which is returned as its message."""
    found = []
    cursor = connection.cursor()
    try:
        for statement in sql.splitlines():
            cursor.execute(statement)
            found.append([list(row) for row in cursor.fetchall()] if cursor.description else [])
        connection.commit()
    except error_kind as error:
        found.append(str(error))
    connection.close()
    return found


@op
def postgres(sql: str):
    """Run SQL at PostgreSQL as the writer."""
    return _postgres(sql)


@op
def mysql(sql: str):
    """Run SQL at the MySQL server as the writer."""
    return _mysql(sql)


@op(login="read_only")
def read_postgres(sql: str):
    """Run SQL at PostgreSQL as a role that only reads."""
    return _postgres(sql)


@op(login="read_only")
def read_mysql(sql: str):
    """Run SQL at the MySQL server as an account that only reads."""
    return _mysql(sql)


run()
