"""Finds the rights beyond reading that a PostgreSQL role has, with a query of the catalogue. The query returns a row for each
right, with a fix.

The query runs at the service; its text is built in the process of one login. The service itself answers, so this protects
against a role that was bound by mistake, not against a service that lies.

Rules
- If the role is a member of another role, the other role's rights count as its own, whether it inherits these rights or would
  have to SET ROLE.
- Rights of PUBLIC count too.
- The right to call a function counts if the function runs as its owner, is written in a language that can do anything, or is
  written in C and may have effects, unless its extension is known to have no effects. PostgreSQL's own functions count if the
  right to call them was granted explicitly.
- Rights that PostgreSQL gives everyone count as reading: temporary tables, own large objects and advisory locks. None of their
  effects is committed (postgres_frame.py).

Source: PostgreSQL's manual, chapters "Privileges", "Predefined Roles", "System Catalogs". Not here: sending the query
(postgres.py).
"""

from __future__ import annotations

from typing import Final

__all__ = ["rights_query"]

_READING_ROLES: Final = (
    "pg_database_owner",  # its only member is the owner, which is found as the owner
    "pg_monitor",
    "pg_read_all_data",
    "pg_read_all_settings",
    "pg_read_all_stats",
    "pg_stat_scan_tables",
)
_HARMLESS_EXTENSIONS: Final = (
    "btree_gin",
    "btree_gist",
    "citext",
    "cube",
    "earthdistance",
    "fuzzystrmatch",
    "hstore",
    "intarray",
    "ltree",
    "pg_stat_statements",
    "pg_trgm",
    "pgcrypto",
    "postgis",
    "postgres_fdw",
    "tablefunc",
    "unaccent",
    "uuid-ossp",
    "vector",
)
"""Extensions whose volatile functions, if they have any, only compute or count."""

_QUERY: Final = """\
BEGIN READ ONLY; SET LOCAL search_path = pg_catalog, pg_temp;
WITH role AS (
  SELECT * FROM pg_roles WHERE pg_has_role(session_user, oid, 'MEMBER')
), found (rank, rolname, is_public, what, fix) AS (
  SELECT CASE attribute WHEN 'SUPERUSER' THEN 0 ELSE 1 END, rolname, NULL::bool, 'it is ' || attribute,
         format('ALTER ROLE %%I NO%%s', rolname, attribute)
  FROM role, LATERAL (VALUES ('SUPERUSER', rolsuper), ('CREATEROLE', rolcreaterole), ('CREATEDB', rolcreatedb),
                             ('REPLICATION', rolreplication), ('BYPASSRLS', rolbypassrls)) AS has (attribute, is_set)
  WHERE is_set
UNION ALL
  SELECT 2, rolname, NULL, 'it may do more than read', ''
  FROM role WHERE starts_with(rolname, 'pg_') AND rolname <> ALL (%(reading_roles)s)
UNION ALL
  SELECT 3, rolname, NULL, 'it owns ' || pg_describe_object(classid, objid, objsubid),
         format('REASSIGN OWNED BY %%I TO another role', rolname)
  FROM role JOIN pg_shdepend ON refobjid = role.oid
  WHERE refclassid = 'pg_authid'::regclass AND deptype = 'o'
    AND dbid IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
UNION ALL
  SELECT 4, rolname, has_table_privilege('public', pg_class.oid, '%(table_rights)s')
                     OR has_any_column_privilege('public', pg_class.oid, 'INSERT, UPDATE, REFERENCES'),
         'it can write to ' || pg_class.oid::regclass, format('REVOKE %(table_rights)s ON %%s', pg_class.oid::regclass)
  FROM role, pg_class
  WHERE relkind IN ('r', 'p', 'v', 'm', 'f') AND pg_class.oid <> 'pg_settings'::regclass
    AND (has_table_privilege(role.oid, pg_class.oid, '%(table_rights)s')
         OR has_any_column_privilege(role.oid, pg_class.oid, 'INSERT, UPDATE, REFERENCES'))
UNION ALL
  SELECT 5, rolname, has_sequence_privilege('public', pg_class.oid, 'USAGE, UPDATE'),
         'it can advance the sequence ' || pg_class.oid::regclass,
         format('REVOKE USAGE, UPDATE ON SEQUENCE %%s', pg_class.oid::regclass)
  FROM role, pg_class
  WHERE CASE WHEN relkind = 'S' THEN has_sequence_privilege(role.oid, pg_class.oid, 'USAGE, UPDATE') END
UNION ALL
  SELECT 6, rolname, has_schema_privilege('public', pg_namespace.oid, 'CREATE'),
         'it can create in the schema ' || quote_ident(nspname), format('REVOKE CREATE ON SCHEMA %%I', nspname)
  FROM role, pg_namespace
  WHERE nspname !~ '^pg_(toast_)?temp_' AND has_schema_privilege(role.oid, pg_namespace.oid, 'CREATE')
UNION ALL
  SELECT 7, rolname, has_database_privilege('public', current_database(), 'CREATE'),
         'it can create schemas in this database', format('REVOKE CREATE ON DATABASE %%I', current_database())
  FROM role WHERE has_database_privilege(role.oid, current_database(), 'CREATE')
UNION ALL
  SELECT 8, rolname, has_function_privilege('public', pg_proc.oid, 'EXECUTE'),
         'it can execute ' || pg_proc.oid::regprocedure ||
         CASE WHEN prosecdef THEN ', which runs with the rights of its owner' ELSE ', which may do more than read' END,
         format('REVOKE EXECUTE ON ROUTINE %%s', pg_proc.oid::regprocedure)
  FROM role, pg_proc JOIN pg_language ON pg_language.oid = prolang
  WHERE pg_proc.oid >= 16384 AND has_function_privilege(role.oid, pg_proc.oid, 'EXECUTE')
    AND prorettype NOT IN ('trigger'::regtype, 'event_trigger'::regtype)
    AND (prosecdef
         OR (NOT lanpltrusted AND lanname NOT IN ('internal', 'c'))
         OR (lanname IN ('internal', 'c') AND provolatile = 'v' AND NOT EXISTS (
               SELECT FROM pg_depend JOIN pg_extension ON pg_extension.oid = refobjid
               WHERE classid = 'pg_proc'::regclass AND objid = pg_proc.oid AND refclassid = 'pg_extension'::regclass
                 AND pg_depend.deptype = 'e' AND extname = ANY (%(harmless_extensions)s))))
UNION ALL
  SELECT 9, rolname, grantee = 0, 'it can execute ' || pg_proc.oid::regprocedure || ', which not everyone can',
         format('REVOKE EXECUTE ON FUNCTION %%s', pg_proc.oid::regprocedure)
  FROM pg_proc JOIN pg_init_privs ON classoid = 'pg_proc'::regclass AND objoid = pg_proc.oid,
       LATERAL aclexplode(proacl) JOIN role ON grantee IN (0, role.oid)
  WHERE pg_proc.oid < 16384 AND grantee NOT IN (SELECT initial.grantee FROM aclexplode(initprivs) AS initial)
UNION ALL
  SELECT 10, rolname, has_server_privilege('public', pg_foreign_server.oid, 'USAGE'),
         'it can use the foreign server ' || quote_ident(srvname), format('REVOKE USAGE ON FOREIGN SERVER %%I', srvname)
  FROM role, pg_foreign_server WHERE has_server_privilege(role.oid, pg_foreign_server.oid, 'USAGE')
UNION ALL
  SELECT 11, rolname, has_foreign_data_wrapper_privilege('public', pg_foreign_data_wrapper.oid, 'USAGE'),
         'it can use the foreign-data wrapper ' || quote_ident(fdwname),
         format('REVOKE USAGE ON FOREIGN DATA WRAPPER %%I', fdwname)
  FROM role, pg_foreign_data_wrapper
  WHERE has_foreign_data_wrapper_privilege(role.oid, pg_foreign_data_wrapper.oid, 'USAGE')
UNION ALL
  SELECT 12, rolname, grantee = 0, 'it can write to the large object ' || pg_largeobject_metadata.oid,
         format('REVOKE UPDATE ON LARGE OBJECT %%s', pg_largeobject_metadata.oid)
  FROM pg_largeobject_metadata, LATERAL aclexplode(lomacl) JOIN role ON grantee IN (0, role.oid)
  WHERE privilege_type = 'UPDATE'
UNION ALL
  SELECT 13, session_user, NULL, 'lo_compat_privileges lets everyone write to large objects',
         'ALTER SYSTEM RESET lo_compat_privileges'
  WHERE current_setting('lo_compat_privileges')::bool
)
SELECT left(CASE WHEN rolname = session_user OR is_public THEN '' ELSE format('as a member of %%I ', rolname) END || what, 200),
       left(CASE WHEN is_public THEN fix || ' FROM PUBLIC'
                 WHEN rolname <> session_user THEN format('REVOKE %%I FROM %%I', rolname, session_user)
                 WHEN NOT is_public THEN format('%%s FROM %%I', fix, rolname)
                 ELSE fix END, 250)
FROM found ORDER BY rank > 2, (rolname = session_user) = (rank > 2), rank, what LIMIT 20;
ROLLBACK"""
"""Template of the query for the session's rights beyond reading. From rank 3, rights that come through a membership are listed
first, because they explain why the role seems to have the same rights itself.
"""


def rights_query(major: int) -> str:
    """Return the SQL of a query for the role's rights beyond reading. The response has no row for a role that only reads.

    It has at most 20 rows with two columns: the right in words, and a fix, mostly the SQL that revokes the right. The text has
    several statements, so it must be sent as a simple Query.

    `major` is the major version of the service. The query leaves no transaction open.
    """
    rights = "INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER" + (", MAINTAIN" if major >= 17 else "")
    return _QUERY % {
        "reading_roles": _array(_READING_ROLES),
        "harmless_extensions": _array(_HARMLESS_EXTENSIONS),
        "table_rights": rights,
    }


def _array(names: tuple[str, ...]) -> str:
    return "ARRAY[" + ", ".join(f"'{name}'" for name in names) + "]::name[]"
