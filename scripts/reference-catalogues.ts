/**
 * The longer tables of docs/reference: the options of every function, from the interfaces that declare them, and the tables of the
 * schema, from the migrations and the snapshot of what they leave.
 *
 * Pure functions from source text to Markdown. An interface that cannot be found is an error here, not a page without it.
 */

export interface OptionsOf {
  /** What takes them, as a caller writes it. */
  readonly call: string
  /** The interfaces that declare them, by name, with their files. */
  readonly interfaces: readonly (readonly [name: string, file: string])[]
}

/** A section with a table for each function. */
export function optionPages(functions: readonly OptionsOf[], read: (file: string) => string): string {
  return functions
    .map(({ call, interfaces }) => {
      const fields = interfaces.flatMap(([name, file]) => fieldsOf(read(file), name, file))
      return [`### ${call}`, '', '| option | default | meaning |', '| --- | --- | --- |', ...fields].join('\n')
    })
    .join('\n\n')
}

/** A row for each table and view of the schema. */
export function schemaTable(migrations: string, snapshot: string): string {
  const relations = [...snapshot.matchAll(/^relation (\w+) ([rv]) /gm)]
  const rows = relations.map(([, name = '', kind]) => {
    const columns = [...snapshot.matchAll(new RegExp(`^column ${name}\\.(\\w+) `, 'gm'))].map((match) => `\`${match[1]}\``)
    const what = describeRelation(migrations, name)
    return `| \`${name}\`${kind === 'v' ? ' (view)' : ''} | ${escape(what)} | ${columns.join(', ')} |`
  })
  if (rows.length === 0) throw new Error('The snapshot of the schema names no table.')
  return ['| table | what it holds | columns |', '| --- | --- | --- |', ...rows].join('\n')
}

/** The comment above the table, up to the list of states that some have. */
function describeRelation(migrations: string, name: string): string {
  const found = new RegExp(`((?:^--.*\\n)*)^create (?:table|view) :schema\\.${name}\\b`, 'm').exec(migrations)
  if (found === null) throw new Error(`No migration makes ${name}.`)
  const lines = (found[1] ?? '').split('\n').map((line) => line.replace(/^--/, ''))
  const list = lines.findIndex((line) => /^ {3}/.test(line))
  const text = lines
    .slice(0, list < 0 ? undefined : list)
    .join(' ')
    .replaceAll(/\s+/g, ' ')
    .trim()
  if (text === '') throw new Error(`The table ${name} has no comment that says what it holds.`)
  return text
}

function fieldsOf(source: string, name: string, file: string): string[] {
  const start = new RegExp(`^export interface ${name}\\b[^{]*\\{$`, 'm').exec(source)
  if (start === null) throw new Error(`${file} declares no interface ${name}.`)
  const body = source.slice(start.index, source.indexOf('\n}', start.index) + 1)
  const fields = [...body.matchAll(/(\/\*\*(?:(?!\*\/)[\s\S])*\*\/\n)?^ {2}readonly (\w+)(\?)?:/gm)]
  return fields.map(([, comment = '', option = '', optional]) => {
    const text = comment
      .replaceAll(/^\s*\/\*\*|\*\/\s*$/g, '')
      .replaceAll(/\n\s*\*/g, ' ')
      .replaceAll(/\s+/g, ' ')
      .trim()
    const [meaning = '', fallback] = text.split(/\s*@default\s+/)
    return `| \`${option}\` | ${optional === undefined ? 'required' : escape(show(fallback))} | ${escape(meaning)} |`
  })
}

/** A default as a reader wants it: values as code, sentences as they are. */
function show(fallback: string | undefined): string {
  if (fallback === undefined) return ''
  return /^['[{]|^[\d_.]+$|^(true|false)$/.test(fallback) && !fallback.includes('`')
    ? `\`${fallback.replaceAll(/(?<=\d)_(?=\d)/g, ',')}\``
    : fallback
}

function escape(text: string): string {
  return text.replaceAll('|', '\\|')
}
