/**
 * Error text without the secrets that it quotes: user infos of addresses, `password=…` and its relatives, credentials of
 * Authorization and Cookie headers, bearer tokens, JSON Web Tokens, PEM keys, keys with a known prefix.
 *
 * Applied where an error is stored or signalled, and again where text is shown. It hides too much rather than too little: of an
 * address, all up to the last `@` of its line, but for the name of a Postgres user. Its time is linear in the text, since strangers
 * choose some of these texts: no search passes twice over what another step of it has passed.
 */
import { errorMessage } from './errors.ts'

const mask = '***'

/** A part of the text to hide, from `start` up to `end`. */
interface Span {
  readonly start: number
  readonly end: number
}

/** What was thrown, as text that may be stored and shown. */
export function redactedMessage(error: unknown): string {
  return redactSecrets(errorMessage(error))
}

export function redactSecrets(text: string): string {
  const spans = [...userInfos(text), ...bareUserInfos(text), ...namedSecrets(text), ...bareSecrets(text)].toSorted(
    (a, b) => a.start - b.start,
  )
  let result = ''
  let done = 0
  for (const { start, end } of spans) {
    if (end <= done) continue
    if (start >= done) result += text.slice(done, start) + mask
    done = end
  }
  return result + text.slice(done)
}

/** `scheme://user:secret@host`. The secret may hold blanks, quotes and more of `@`; it ends in its line, before the next address. */
function userInfos(text: string): Span[] {
  const spans: Span[] = []
  for (let at = text.indexOf('://'); at !== -1;) {
    const start = at + 3
    const next = text.indexOf('://', start)
    const rest = text.slice(start, next === -1 ? text.length : next)
    const line = rest.slice(0, indexOfAny(rest, 0, /[\r\n]/g))
    const word = line.slice(0, indexOfAny(line, 0, /[\s"'`<>]/g))
    const last = line.lastIndexOf('@')
    const isPlain = /(?:https?|wss?)$/i.test(text.slice(Math.max(0, at - 5), at))
    const secret = afterUser(text, at)
    const from = text[secret - 1] === ':' ? secret : start
    if (word.includes('@') || (last !== -1 && (!isPlain || isOpen(word)))) {
      if (start + last !== secret) spans.push({ start: from, end: start + last })
    } else if (isOpen(word)) spans.push({ start: from, end: start + word.length })
    at = next
  }
  return spans
}

/** Where the plain name of a Postgres user ends, with the colon behind it. The user of another service may be its key. */
function afterUser(text: string, at: number): number {
  const isPostgres = /\bpostgres(?:ql)?$/i.test(text.slice(Math.max(0, at - 12), at))
  return (isPostgres ? textAt(text, at + 3, /[\w.-]{1,63}:?/y)?.end : undefined) ?? at + 3
}

/** Whether it begins as `user:secret` does, and not as `host:port`. */
function isOpen(word: string): boolean {
  return !word.startsWith('[') && /^[^/?#]*:(?!\d{1,5}(?!\w))[^/?#]/.test(word)
}

/** `user:secret@host` without a scheme. */
function bareUserInfos(text: string): Span[] {
  return [...text.matchAll(/[^\s"'`<>(),;=]+/g)].flatMap(({ 0: word, index }) => {
    const last = word.lastIndexOf('@')
    const colon = word.indexOf(':')
    return colon > 0 && colon < last - 1 && !word.includes('://') ? [{ start: index, end: index + last }] : []
  })
}

const secretName =
  /pass(?:word|wd|phrase|code)|pwd|secret|token|credentials?|(?:api|access|account|private)[_-]?key|signature|authorization|cookie|session[_-]?id|\bsig(?==)/gi

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

/** Of a value in quotes up to its closing quote, which may be escaped as the opening one; of any other up to a blank or the next name. */
function endOfValue(text: string, start: number): number {
  const hidden = textAt(text, start, /\*{3}(?![\w*])/y)
  if (hidden !== undefined) return hidden.end
  const quote = textAt(text, start, /\\?["'`]/y)?.text
  if (quote === undefined) return indexOfAny(text, start, /\s|[;&](?=[\w.-]{1,40}=)/g)
  for (let at = start + quote.length; at < text.length; at += 1) {
    if (text.startsWith(quote, at)) return at + quote.length
    if (text[at] === '\\') at += 1
  }
  return text.length
}

/** A header's value ends with its line, or with the quote that it stands in: its own quotes are part of it. */
function endOfHeader(text: string, start: number): number {
  return textAt(text, start, /\\?["']/y) === undefined ? indexOfAny(text, start, /[\r\n]/g) : endOfValue(text, start)
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
