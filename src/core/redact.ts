/**
 * Error text without the secrets that it quotes: passwords in addresses, `password=…` and its relatives, credentials of
 * Authorization and Cookie headers, bearer tokens, JSON Web Tokens, PEM keys, keys with a known prefix.
 *
 * Applied where an error is stored and again where text is shown. It hides too much rather than too little: of an address, all up
 * to the last `@`, but for the name of a Postgres user. Its time is linear in the text, since strangers choose some of these texts: no pattern repeats without a bound,
 * and no scanner looks twice at what another match of it has passed.
 */

const mask = '***'

/** A part of the text to hide, from `start` up to `end`. */
interface Span {
  readonly start: number
  readonly end: number
}

export function redactSecrets(text: string): string {
  const spans = [...userInfos(text), ...namedSecrets(text), ...bareSecrets(text)].toSorted((a, b) => a.start - b.start)
  let result = ''
  let done = 0
  for (const { start, end } of spans) {
    if (end <= done) continue
    if (start >= done) result += text.slice(done, start) + mask
    done = end
  }
  return result + text.slice(done)
}

/** `scheme://user:secret@host`: everything between the slashes and the last `@` before white space, a quote or a bracket. */
function userInfos(text: string): Span[] {
  const spans: Span[] = []
  let at = text.indexOf('://')
  while (at !== -1) {
    const start = at + 3
    const end = indexOfAny(text, start, /[\s"'`<>]/g)
    const last = text.lastIndexOf('@', end - 1)
    const secret = afterUser(text, at)
    if (last >= start && last !== secret) spans.push({ start: text[secret - 1] === ':' ? secret : start, end: last })
    at = text.indexOf('://', end)
  }
  return spans
}

/** Where the plain name of a Postgres user ends, with the colon behind it. The user of another service may be its key. */
function afterUser(text: string, at: number): number {
  const isPostgres = /\bpostgres(?:ql)?$/i.test(text.slice(Math.max(0, at - 12), at))
  return (isPostgres ? textAt(text, at + 3, /[\w.-]{1,63}:?/y)?.end : undefined) ?? at + 3
}

const secretName =
  /pass(?:word|wd|phrase)|pwd|secret|token|credentials?|api[_-]?key|access[_-]?key|private[_-]?key|signature|authorization|cookie/gi

/** `password=x`, `"client_secret": "x"`, `pwd => 'x y'`, `Authorization: Bearer x`, `Cookie: a=b; c=d`. */
function namedSecrets(text: string): Span[] {
  const spans: Span[] = []
  secretName.lastIndex = 0
  for (let name = secretName.exec(text); name !== null; name = secretName.exec(text)) {
    const sign = textAt(text, secretName.lastIndex, /[\w-]{0,16}\\?["']?\]?\s{0,8}(?:=>|[=:])\s{0,8}/y)
    if (sign === undefined) continue
    const start = sign.end
    const end = /^(?:authorization|cookie)$/i.test(name[0]) ? endOfHeader(text, start) : endOfValue(text, start)
    if (end > start) spans.push({ start, end })
    secretName.lastIndex = Math.max(end, secretName.lastIndex)
  }
  return spans
}

/** Of a value in quotes up to its closing quote, which may be escaped as the opening one; of any other up to a separator. */
function endOfValue(text: string, start: number): number {
  const quote = textAt(text, start, /\\?["']/y)?.text
  if (quote === undefined) return indexOfAny(text, start, /[\s,;&)\]}]/g)
  for (let at = start + quote.length; at < text.length; at += 1) {
    if (text.startsWith(quote, at)) return at + quote.length
    if (text[at] === '\\') at += 1
  }
  return text.length
}

/** A header's value ends with its line, or with the quote that it stands in. */
function endOfHeader(text: string, start: number): number {
  return textAt(text, start, /\\?["']/y) === undefined ? indexOfAny(text, start, /[\r\n"']/g) : endOfValue(text, start)
}

const bare = [
  /\b(?:bearer|basic)\s{1,8}(?=[\w~+/.=-]{6})/gi,
  /\beyJ(?=[\w-]{8})/g,
  /\b(?:AKIA|ASIA|AIza|gh[pousr]_|github_pat_|sk_live_|sk_test_|rk_live_|xox[abprs]-|glpat-|npm_)(?=[\w-]{12})/g,
]
const pem = '-----BEGIN '

/** Secrets that show by their own form. */
function bareSecrets(text: string): Span[] {
  const spans: Span[] = []
  for (const pattern of bare) {
    pattern.lastIndex = 0
    for (let match = pattern.exec(text); match !== null; match = pattern.exec(text)) {
      const isScheme = /\s$/.test(match[0])
      const start = isScheme ? pattern.lastIndex : match.index
      const end = indexOfAny(text, pattern.lastIndex, /[^\w~+/.=-]/g)
      spans.push({ start, end })
      pattern.lastIndex = end
    }
  }
  for (let at = text.indexOf(pem); at !== -1;) {
    const closing = text.indexOf('-----END ', at)
    const end = closing === -1 ? text.length : indexOfAny(text, closing + 9, /[\r\n]|-----/g) + 5
    spans.push({ start: at, end: Math.min(end, text.length) })
    at = text.indexOf(pem, end)
  }
  return spans
}

/** Where the next character of the pattern stands, or the end of the text. */
function indexOfAny(text: string, from: number, pattern: RegExp): number {
  pattern.lastIndex = from
  return pattern.exec(text)?.index ?? text.length
}

/** What stands right there, if the sticky pattern takes it. */
function textAt(text: string, from: number, pattern: RegExp): { readonly text: string; readonly end: number } | undefined {
  pattern.lastIndex = from
  const found = pattern.exec(text)?.[0]
  return found === undefined ? undefined : { text: found, end: from + found.length }
}
