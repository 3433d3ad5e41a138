/** Defaults of a database or a role under which everything must work the same. */
export const sessions: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  'repeatable read': { default_transaction_isolation: `'repeatable read'` },
  serializable: { default_transaction_isolation: 'serializable' },
  'dates of India, where IST is read as another zone': { datestyle: `'SQL, DMY'`, timezone: `'Asia/Kolkata'` },
  'dates of China in German style': { datestyle: 'German', timezone: `'Asia/Shanghai'`, intervalstyle: 'sql_standard' },
  'backslashes that escape in plain literals': { standard_conforming_strings: 'off', escape_string_warning: 'off' },
  'no schema in the search path': { search_path: `''` },
  'bytes in escapes': { bytea_output: 'escape' },
  'synchronous_commit = local': { synchronous_commit: 'local' },
  'synchronous_commit = off': { synchronous_commit: 'off' },
  'fifteen digits and short waits': {
    extra_float_digits: '0',
    lock_timeout: '2000',
    idle_in_transaction_session_timeout: '5000',
  },
}
