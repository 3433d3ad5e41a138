/**
 * Reads moments as events carry them: `2025-01-31T23:59:59.123456Z`, in UTC, to the microsecond.
 *
 * Every event has one, and `Date.parse`, which knows all forms of a date, takes twice as long. Other forms are left to it. Events that
 * come together are often of one second, so the last one is remembered.
 */

/** Milliseconds since 1970, or NaN. */
export function parseMoment(text: string): number {
  const isAsLast = text.length === form.length && text.startsWith(last.second)
  if (!isOurs(text, isAsLast ? last.second.length : 0)) return Date.parse(text)
  if (!isAsLast) last = { second: text.slice(0, 20), startMs: startOf(text) }
  return last.startMs === undefined ? Date.parse(text) : last.startMs + digit(text, 20) * 100 + two(text, 21)
}

let last: { readonly second: string; readonly startMs: number | undefined } = { second: 'none', startMs: undefined }

/** The beginning of the moment's second; undefined if it takes more than arithmetic to tell. */
function startOf(text: string): number | undefined {
  const [year, month, day] = [two(text, 0) * 100 + two(text, 2), two(text, 5), two(text, 8)]
  const [hour, minute, second] = [two(text, 11), two(text, 14), two(text, 17)]
  // Date.UTC carries over what is too large, and takes years below 100 for those of the last century.
  const isDay = month >= 1 && month <= 12 && day >= 1 && day <= (month === 2 ? 28 : 30)
  const isPlain = year >= 100 && isDay && hour <= 23 && minute <= 59 && second <= 59
  return isPlain ? Date.UTC(year, month - 1, day, hour, minute, second) : undefined
}

const form = '0000-00-00T00:00:00.000000Z'

/** Whether it has our form, from the given place on. */
function isOurs(text: string, from: number): boolean {
  if (text.length !== form.length) return false
  for (let i = from; i < form.length; i += 1) {
    const expected = form.charCodeAt(i)
    const code = text.charCodeAt(i)
    if (expected === zero ? code < zero || code > nine : code !== expected) return false
  }
  return true
}

const zero = 48
const nine = 57

function two(text: string, at: number): number {
  return digit(text, at) * 10 + digit(text, at + 1)
}

function digit(text: string, at: number): number {
  return text.charCodeAt(at) - zero
}
