/**
 * The tables of docs/reference, made from the source that they describe, so that they cannot say anything else.
 *
 * Pure functions from source text or values to Markdown. A code or signal that nobody described is an error here.
 */

/** The table of error codes, from the text of src/core/errors.ts. */
export function errorTable(source: string): string {
  const body = section(source, 'export const errorMeanings = {', '} as const')
  const entries = [
    ...body.matchAll(/(\/\*\*[\s\S]*?\*\/)?\s*([A-Z_]+): \{ grpc: '([A-Z_]+)', http: (\d+), retryable: (true|false) \}/g),
  ]
  assertCount('error codes', entries.length, body.match(/^ {2}[A-Z_]+:/gm))
  const rows = entries.map(([, comment, code = '', grpc = '', http = '', retryable]) => {
    if (comment === undefined) throw new Error(`src/core/errors.ts: ${code} has no comment that says what it means.`)
    return [`\`${code}\``, plain(comment), grpc, http, retryable === 'true' ? 'yes' : 'no']
  })
  return table(['code', 'what it means', 'gRPC', 'HTTP', 'repeat the same call?'], rows)
}

/** The table of signals, from the text of src/core/signals.ts. Signals of one paragraph share the comment above them. */
export function signalTable(source: string): string {
  const body = section(source, 'export interface Signals {', '\n}')
  const rows = body.split(/\n\s*\n/).flatMap(signalRows)
  assertCount('signals', rows.length, body.match(/^ {2}'[^']+':/gm))
  return table(['signal', 'when', 'what it carries'], rows)
}

/** The table of defaults, from the values of src/core/defaults.ts: all of them, and the names of those that cannot be set. */
export function defaultTable(defaults: object, fixed: readonly string[] = []): string {
  const rows = flatten(defaults, '')
  for (const name of fixed)
    if (!rows.some(([found]) => found === `\`${name}\``))
      throw new Error(`src/core/defaults.ts: there is no ${name} to be fixed.`)
  const marked = rows.map(([name = '', value = '']) => [fixed.includes(name.slice(1, -1)) ? `${name} (fixed)` : name, value])
  return table(['option', 'default'], marked)
}

/** `page` with everything between its two markers replaced by `content`. */
export function fillPage(page: string, content: string): string {
  const [start, end] = ['<!-- made by scripts/docs.ts: do not edit -->', '<!-- end -->']
  const [from, to] = [page.indexOf(start), page.indexOf(end)]
  if (from < 0 || to < from) throw new Error(`The page needs the lines "${start}" and "${end}", in this order.`)
  return `${page.slice(0, from + start.length)}\n\n${content}\n\n${page.slice(to)}`
}

function signalRows(paragraph: string): string[][] {
  let comment: string | undefined
  const entries = paragraph.matchAll(/(\/\*\*[\s\S]*?\*\/)?\s*'([^']+)': \{([^{}]*)\}/g)
  return [...entries].map(([, own, name = '', fields = '']) => {
    comment = own ?? comment
    if (comment === undefined) throw new Error(`src/core/signals.ts: ${name} has no comment that says when it is sent.`)
    return [`\`${name}\``, plain(comment), fieldList(fields)]
  })
}

function fieldList(fields: string): string {
  const parts = fields.split(/[;\n]/).map((field) => field.trim().replace(/^readonly /, ''))
  return parts
    .filter((field) => field !== '')
    .map((field) => `\`${field}\``)
    .join(', ')
}

function flatten(value: object, path: string): string[][] {
  return Object.entries(value).flatMap(([key, each]: [string, unknown]) => {
    const name = path === '' ? key : `${path}.${key}`
    if (typeof each !== 'object' || each === null) return [[`\`${name}\``, show(key, each)]]
    return 'firstMs' in each ? [[`\`${name}\``, showBackoff(each as Backoff)]] : flatten(each, name)
  })
}

interface Backoff {
  readonly firstMs: number
  readonly maxMs: number
  readonly factor?: number
  readonly jitter?: string
}

function showBackoff({ firstMs, maxMs, factor = 2, jitter = 'equal' }: Backoff): string {
  return `${duration(firstMs)} × ${factor} to ${duration(maxMs)}, ${jitter === 'none' ? 'no' : jitter} jitter`
}

function show(key: string, value: unknown): string {
  if (typeof value !== 'number') return `\`${JSON.stringify(value).replaceAll('"', "'")}\``
  return key.endsWith('Ms') ? duration(value) : value.toLocaleString('en-US')
}

function duration(ms: number): string {
  const units = [
    ['days', 86_400_000],
    ['h', 3_600_000],
    ['min', 60_000],
    ['s', 1_000],
  ] as const
  const [unit, size] = units.find(([, each]) => ms >= each && ms % (each / 10) === 0) ?? ['ms', 1]
  return `${ms / size} ${unit}`
}

/** A doc comment as one line of text. */
function plain(comment: string): string {
  return comment
    .replaceAll(/^\/\*\*|\*\/$/g, '')
    .replaceAll(/\n\s*\*/g, ' ')
    .replaceAll(/\s+/g, ' ')
    .trim()
}

function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]): string => `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`
  return [line(head), line(head.map(() => '---')), ...rows.map(line)].join('\n')
}

function section(source: string, start: string, end: string): string {
  const from = source.indexOf(start)
  const to = source.indexOf(end, from)
  if (from < 0 || to < 0) throw new Error(`The source has no "${start} … ${end.trim()}".`)
  return source.slice(from + start.length, to)
}

/** What the pattern did not understand must not be left out in silence. */
function assertCount(what: string, found: number, names: readonly string[] | null): void {
  if (names?.length !== found)
    throw new Error(`Of ${names?.length ?? 0} ${what} only ${found} could be read; write them like the others.`)
}
