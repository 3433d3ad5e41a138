/**
 * Whether a statement answers with rows or with a count, for drivers that must be told beforehand.
 *
 * Only what is written outside quotes, comments and parentheses decides: the verb, and `returning`.
 */

/** True for queries and for what has `returning`; false for other changes, for definitions and for scripts. */
export function returnsRows(text: string): boolean {
  const outline = outermost(withoutQuotes(text))
  if (/;\s*\S/.test(outline)) return false
  if (/^\s*§/.test(outline)) return true
  // The main verb of a `with` follows the last parenthesis of its list; a query's name follows `with` or a comma.
  const verb = mainVerb.exec(outline)?.[1]?.toLowerCase()
  if (verb === undefined) return false
  return !['insert', 'update', 'delete', 'merge'].includes(verb) || /\breturning\b/i.test(outline)
}

/** The text without what is in quotes, and without comments. */
export function withoutQuotes(text: string): string {
  return text.replace(quotedOrComment, ' ')
}

const mainVerb = /(?:^|§)\s*(select|values|table|show|explain|fetch|call|execute|insert|update|delete|merge)\b/i

const quotedOrComment =
  /\be'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|\/\*[\s\S]*?\*\/|\$([a-z_]\w*)?\$[\s\S]*?\$\1\$/gi

/** The text with everything in parentheses replaced by one sign. */
function outermost(text: string): string {
  const shorter = text.replace(/\([^()]*\)/g, '§')
  return shorter === text ? text : outermost(shorter)
}
