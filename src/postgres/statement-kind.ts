/**
 * Whether a statement answers with rows or with a count, for drivers that must be told beforehand.
 *
 * Only what is written outside quotes, comments and parentheses decides: the verb, and `returning`.
 */

/** False for an insert, update, delete or merge without `returning`. */
export function returnsRows(text: string): boolean {
  const outline = outermost(text.replace(quotedOrComment, ' '))
  // The main verb of a `with` follows the last parenthesis of its list; a query's name follows `with` or a comma.
  const verb = /(?:^|§)\s*(select|values|table|insert|update|delete|merge)\b/i.exec(outline)?.[1]?.toLowerCase()
  return verb === undefined || !['insert', 'update', 'delete', 'merge'].includes(verb) || /\breturning\b/i.test(outline)
}

const quotedOrComment =
  /\be'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|\/\*[\s\S]*?\*\/|\$([a-z_]\w*)?\$[\s\S]*?\$\1\$/gi

/** The text with everything in parentheses replaced by one sign. */
function outermost(text: string): string {
  const shorter = text.replace(/\([^()]*\)/g, '§')
  return shorter === text ? text : outermost(shorter)
}
