/**
 * The JSON of a request, read as its sender wrote it or refused: JSON.parse would round 9007199254740993, take 1e400 for Infinity, keep
 * the last of two values under one name, and make a prototype of `__proto__`, all in silence. Then two requests that differ would be one.
 *
 * What is unusual is looked for in the parsed value and by one quick look at the text; only where that finds something is the text
 * read once more, number by number. All of it is linear.
 */
import { endOfString, overBudget, parseWithin, type Budget } from './budget.ts'
import { defaults } from '../defaults.ts'
import { isWaybillError, WaybillError } from '../errors.ts'

/** The value of a JSON text; INVALID_INPUT if it is none, or if reading it would change what it says; TOO_LARGE beyond the budget. */
export function parseExactJson(text: string, budget: Budget = defaults.budget): unknown {
  let value: unknown
  try {
    value = parseWithin(text, budget)
  } catch (cause) {
    if (isWaybillError(cause)) throw cause
    throw new WaybillError('INVALID_INPUT', 'The body is not JSON.', { cause })
  }
  const { colons, hasOddNumber } = look(text)
  // As many colons as names: no value was dropped for another one under its name.
  if (hasOddNumber || colons !== countNames(value)) refuseInexact(text)
  return value
}

/**
 * Refuses what shows in a value that was parsed elsewhere: numbers that JSON.parse rounds, names that change prototypes, and more
 * values or levels than the budget has. Names that stood twice, and integers of more than 21 digits, do not show any more.
 */
export function assertExact(value: unknown, budget: Budget = defaults.budget): void {
  countNames(value, budget, (number) => {
    const size = Math.abs(number)
    // From 1e21 on it is written with an exponent, by which its sender says that the last digits do not count.
    if (size > Number.MAX_SAFE_INTEGER && !(size >= 1e21 && size < Number.POSITIVE_INFINITY)) throw inexact(String(number))
  })
}

/** All names of all objects in a value, level by level: without recursion, however deep it is. */
function countNames(root: unknown, budget?: Budget, onNumber?: (number: number) => void): number {
  const { maxValues, maxDepth } = budget ?? { maxValues: Infinity, maxDepth: Infinity }
  let [names, values, depth] = [0, 0, 0]
  let next: object[] = []
  const meet = (value: unknown): void => {
    values += 1
    if (typeof value === 'object' && value !== null) next.push(value)
    else if (typeof value === 'number') onNumber?.(value)
  }
  meet(root)
  while (next.length > 0) {
    const level = next
    next = []
    depth += 1
    if (budget !== undefined && depth > maxDepth) throw overBudget('maxDepth', budget)
    for (const value of level) {
      if (Array.isArray(value)) for (const each of value) meet(each)
      else names += meetMembers(value, meet)
      if (budget !== undefined && values > maxValues) throw overBudget('maxValues', budget)
    }
  }
  return names
}

function meetMembers(value: object, meet: (value: unknown) => void): number {
  const names = Object.keys(value)
  for (const name of names) {
    const each = (value as Readonly<Record<string, unknown>>)[name]
    if (name === '__proto__' || (name === 'constructor' && hasPrototype(each))) throw pollution(name)
    meet(each)
  }
  return names.length
}

function hasPrototype(value: unknown): boolean {
  return typeof value === 'object' && value !== null && Object.hasOwn(value, 'prototype')
}

const [quote, colon] = [0x22, 0x3a]

/** What stands outside of strings: how many colons, and whether a number has an exponent or 16 digits in a row. */
function look(text: string): { readonly colons: number; readonly hasOddNumber: boolean } {
  let [colons, digits, hasOddNumber] = [0, 0, false]
  for (let at = 0; at < text.length; at += 1) {
    const code = text.charCodeAt(at)
    if (code >= 0x30 && code <= 0x39) {
      digits += 1
      if (digits === 16) hasOddNumber = true
      continue
    }
    if (code === colon) colons += 1
    else if (code === quote) at = endOfString(text, at)
    else if (digits > 0 && (code === 0x65 || code === 0x45)) hasOddNumber = true
    digits = 0
  }
  return { colons, hasOddNumber }
}

/** Finds the number or the name that the refusal is about; returns where all numbers are exact. */
function refuseInexact(text: string): void {
  const open: Set<string>[] = []
  const token = /["{}]|-?\d[\d.eE+-]*/g
  const isName = /\s*:/y
  for (let found = token.exec(text); found !== null; found = token.exec(text)) {
    const [word] = found
    if (word === '{') open.push(new Set())
    else if (word === '}') open.pop()
    else if (word !== '"') assertDigits(word)
    else {
      isName.lastIndex = token.lastIndex = endOfString(text, found.index) + 1
      if (isName.test(text)) assertFirst(text.slice(found.index, token.lastIndex), open.at(-1))
    }
  }
}

function assertFirst(quoted: string, names: Set<string> | undefined): void {
  const name = JSON.parse(quoted) as string
  if (names?.has(name) === true)
    throw new WaybillError(
      'INVALID_INPUT',
      `The body has the name ${quoted.slice(0, 100)} twice in one object. Send each name once.`,
    )
  names?.add(name)
}

function assertDigits(word: string): void {
  const value = Number(word)
  const [mantissa = '', exponent] = word.split(/[eE]/)
  const digits = mantissa.replaceAll(/[-.]/g, '').replace(/^0+/, '')
  const isLost = value === 0 && digits !== ''
  const isRounded = Math.abs(value) > Number.MAX_SAFE_INTEGER && (exponent === undefined || !hasDigits(value, digits))
  if (isLost || isRounded || !Number.isFinite(value)) throw inexact(word)
}

/** A number keeps 17 digits at most. */
function hasDigits(value: number, digits: string): boolean {
  return digits.length <= 17 && value.toExponential(digits.length - 1).replaceAll(/e.*|[-.]/g, '') === digits
}

function inexact(word: string): WaybillError {
  return new WaybillError(
    'INVALID_INPUT',
    `The body has the number ${word.slice(0, 40)}, which JSON readers round. Send it as a string.`,
  )
}

function pollution(name: string): WaybillError {
  return new WaybillError(
    'INVALID_INPUT',
    `The body has the name "${name}", which would change an object's prototype. Leave it out.`,
  )
}
