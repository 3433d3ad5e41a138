/**
 * The headers of an event, which the outbox keeps as one JSON object, as texts by name: what a broker carries beside a message.
 *
 * Attributes are texts. Whoever adds events by SQL can write any JSON: what is no text there becomes its JSON, digit by digit.
 */

/** TypeScript does not know yet that a reviver is told the text of a value, and that a text can be written as it is. */
const exactJson = JSON as unknown as {
  parse(text: string, reviver: (name: string, value: unknown, from: { readonly source: string }) => unknown): object
  rawJSON(text: string): unknown
}

/** `undefined` if it is no JSON object. */
export function headerTexts(json: string): Record<string, string> | undefined {
  const parsed = parse(json)
  if (typeof parsed !== 'object' || parsed === null || Array.isArray(parsed)) return undefined
  if (Object.values(parsed).every((value) => typeof value === 'string')) return parsed as Record<string, string>
  return Object.fromEntries(
    Object.entries(parseExactly(json)).map(([name, value]) => [name, typeof value === 'string' ? value : JSON.stringify(value)]),
  )
}

function parse(json: string): unknown {
  try {
    return JSON.parse(json)
  } catch {
    return undefined
  }
}

/** Numbers keep their digits: a JSON number may have more than a number of JavaScript. */
function parseExactly(json: string): object {
  return exactJson.parse(json, (_name, value, { source }) => (typeof value === 'number' ? exactJson.rawJSON(source) : value))
}
