/**
 * Subscription filters, in the language Google documents.
 *
 *   filter  = factor { AND factor } | factor { OR factor }        AND and OR mix only through parentheses
 *   factor  = [ NOT | - ] ( "(" filter ")" | test )
 *   test    = attributes:key | attributes.key = "value" | attributes.key != "value" | hasPrefix(attributes.key, "value")
 *
 * Keywords are upper case; a key that is not a plain word is quoted.
 */
import { invalid } from './rpc-error.ts'

export type Attributes = ReadonlyMap<string, string>
export type Filter = (attributes: Attributes) => boolean

const maxFilterBytes = 256

/** Compiles a filter; the empty one matches everything. */
export function parseFilter(text: string): Filter {
  if (text.trim() === '') return () => true
  if (Buffer.byteLength(text) > maxFilterBytes) throw invalid(`A filter has at most ${maxFilterBytes} bytes.`)
  const tokens = tokenize(text)
  const cursor: Cursor = { tokens, position: 0, text }
  const filter = parseAny(cursor)
  if (cursor.position < tokens.length) throw syntaxError(cursor)
  return filter
}

interface Token {
  readonly kind: 'word' | 'string' | 'symbol'
  readonly value: string
}

interface Cursor {
  readonly tokens: readonly Token[]
  readonly text: string
  position: number
}

const tokenPattern = /\s*(?:"((?:[^"\\]|\\.)*)"|([A-Za-z0-9_][A-Za-z0-9_-]*)|(!=|[=:.,()-]))/y

function tokenize(text: string): Token[] {
  const tokens: Token[] = []
  const source = text.trimEnd()
  tokenPattern.lastIndex = 0
  for (let at = 0; at < source.length; at = tokenPattern.lastIndex) {
    tokenPattern.lastIndex = at
    const match = tokenPattern.exec(source)
    if (match === null) throw invalid(`Filter does not parse at position ${at}: ${text}`)
    const [, quoted, word, symbol] = match
    if (quoted !== undefined) tokens.push({ kind: 'string', value: quoted.replace(/\\(.)/g, '$1') })
    else if (word !== undefined) tokens.push({ kind: 'word', value: word })
    else tokens.push({ kind: 'symbol', value: symbol as string })
  }
  return tokens
}

function parseAny(cursor: Cursor): Filter {
  const filters = [parseFactor(cursor)]
  const operator = cursor.tokens[cursor.position]
  if (operator?.kind !== 'word' || (operator.value !== 'AND' && operator.value !== 'OR')) return filters[0] as Filter
  while (accept(cursor, 'word', operator.value)) filters.push(parseFactor(cursor))
  return operator.value === 'AND'
    ? (attributes) => filters.every((filter) => filter(attributes))
    : (attributes) => filters.some((filter) => filter(attributes))
}

function parseFactor(cursor: Cursor): Filter {
  if (accept(cursor, 'word', 'NOT') || accept(cursor, 'symbol', '-')) {
    const negated = parseFactor(cursor)
    return (attributes) => !negated(attributes)
  }
  if (accept(cursor, 'symbol', '(')) {
    const inner = parseAny(cursor)
    expect(cursor, 'symbol', ')')
    return inner
  }
  if (accept(cursor, 'word', 'hasPrefix')) return parsePrefix(cursor)
  expect(cursor, 'word', 'attributes')
  if (accept(cursor, 'symbol', ':')) {
    const key = parseKey(cursor)
    return (attributes) => attributes.has(key)
  }
  expect(cursor, 'symbol', '.')
  const key = parseKey(cursor)
  const isEqual = accept(cursor, 'symbol', '=')
  if (!isEqual) expect(cursor, 'symbol', '!=')
  const value = parseString(cursor)
  return isEqual ? (attributes) => attributes.get(key) === value : (attributes) => attributes.get(key) !== value
}

function parsePrefix(cursor: Cursor): Filter {
  expect(cursor, 'symbol', '(')
  expect(cursor, 'word', 'attributes')
  expect(cursor, 'symbol', '.')
  const key = parseKey(cursor)
  expect(cursor, 'symbol', ',')
  const prefix = parseString(cursor)
  expect(cursor, 'symbol', ')')
  return (attributes) => attributes.get(key)?.startsWith(prefix) === true
}

function parseKey(cursor: Cursor): string {
  const token = cursor.tokens[cursor.position]
  if (token === undefined || token.kind === 'symbol') throw syntaxError(cursor)
  cursor.position += 1
  return token.value
}

function parseString(cursor: Cursor): string {
  const token = cursor.tokens[cursor.position]
  if (token?.kind !== 'string') throw syntaxError(cursor)
  cursor.position += 1
  return token.value
}

function accept(cursor: Cursor, kind: Token['kind'], value: string): boolean {
  const token = cursor.tokens[cursor.position]
  if (token?.kind !== kind || token.value !== value) return false
  cursor.position += 1
  return true
}

function expect(cursor: Cursor, kind: Token['kind'], value: string): void {
  if (!accept(cursor, kind, value)) throw syntaxError(cursor)
}

function syntaxError(cursor: Cursor): Error {
  const token = cursor.tokens[cursor.position]
  const found = token === undefined ? 'its end' : `'${token.value}'`
  return invalid(`Filter does not parse at ${found}: ${cursor.text}`)
}
