/**
 * How much data bytes from outside may stand for. Two bytes make an object of a hundred, and one byte makes a level: so besides bytes,
 * values and levels are bounded, and counted before much is made of them.
 *
 * Values are counted by what separates them (a comma, a bracket, a field, an item), so that an empty list counts twice. Counting is
 * linear, ends at the first value too many, and is left out where so few bytes cannot be too much.
 */
import { defaults } from '../defaults.ts'
import { WaybillError } from '../errors.ts'
import { resolve, wholeBetween, type Checks } from '../options.ts'

export interface DataBudget {
  /** Values in one payload: fields, and items of lists and maps, at all levels. @default 250_000 */
  readonly maxValues?: number
  /** Levels of lists and objects inside each other. @default 500 */
  readonly maxDepth?: number
}

export type Budget = Required<DataBudget>

const budgetChecks: Checks<Budget> = {
  maxValues: wholeBetween(1, 1_000_000_000),
  // Readers of schemas go down level by level, on the stack.
  maxDepth: wholeBetween(1, 5_000),
}

/** For what is our own: read once before, or an operator's file. */
export const unlimited: Budget = { maxValues: Infinity, maxDepth: Infinity }

/** The budget of a request's body: it grows with the bytes that are allowed. */
export function bodyBudget(maxBytes: number): Budget {
  return { ...defaults.budget, maxValues: Math.max(defaults.budget.maxValues, Math.ceil(maxBytes / 4)) }
}

/** Fills and checks the budget of a codec; INVALID_OPTION for what it cannot be. */
export function resolveBudget(component: string, given: DataBudget): Budget {
  return resolve<Budget>(component, { ...defaults.budget }, given, budgetChecks)
}

/** JSON.parse, within the budget: TOO_LARGE beyond it, SyntaxError for what is no JSON. */
export function parseWithin(text: string, budget: Budget): unknown {
  if (text.length > budget.maxValues) assertJsonBudget(text, budget)
  const value: unknown = JSON.parse(text)
  // A value takes a character, and a level two: so few of them can only be too deep, which the value shows sooner than the text.
  if (text.length <= budget.maxValues && text.length > 2 * budget.maxDepth) assertDepth(value, budget)
  return value
}

/** TOO_LARGE for a value whose JSON has more levels, or more values. */
export function assertWithin(value: unknown, json: string, budget: Budget): void {
  if (json.length > budget.maxValues) assertJsonBudget(json, budget)
  else if (json.length > 2 * budget.maxDepth) assertDepth(value, budget)
}

function assertDepth(value: unknown, budget: Budget, left: number = budget.maxDepth): void {
  if (typeof value !== 'object' || value === null) return
  if (left === 0) throw overBudget('maxDepth', budget)
  // Asked before the call: most members are no objects.
  if (Array.isArray(value)) {
    for (const each of value) if (typeof each === 'object') assertDepth(each, budget, left - 1)
    return
  }
  for (const name in value) {
    const each = (value as Readonly<Record<string, unknown>>)[name]
    if (typeof each === 'object') assertDepth(each, budget, left - 1)
  }
}

/** TOO_LARGE if the text has more values or levels. Of a text that is no JSON it may say anything. */
export function assertJsonBudget(text: string, budget: Budget): void {
  const { maxValues, maxDepth } = budget
  let values = 1
  let depth = 0
  for (let at = 0; at < text.length; at += 1) {
    const code = text.charCodeAt(at)
    if (code === quote) {
      at = endOfString(text, at)
      if (at === -1) return
    } else if (code === comma) {
      values += 1
    } else if (code === openList || code === openObject) {
      values += 1
      depth += 1
      if (depth > maxDepth) throw overBudget('maxDepth', budget)
    } else if (code === closeList || code === closeObject) {
      depth -= 1
    }
    if (values > maxValues) throw overBudget('maxValues', budget)
  }
}

const [quote, comma, backslash] = [0x22, 0x2c, 0x5c]
const [openList, closeList, openObject, closeObject] = [0x5b, 0x5d, 0x7b, 0x7d]

/** Strings are short mostly, and then looked through faster than a search begins. */
const shortString = 24

/** The place of the quote that ends the string which begins at `from`; -1 if none does. */
export function endOfString(text: string, from: number): number {
  const soon = Math.min(text.length, from + shortString)
  for (let at = from + 1; at < soon; at += 1) {
    const code = text.charCodeAt(at)
    if (code === quote) return at
    if (code === backslash) at += 1
  }
  for (let at = text.indexOf('"', from + 1); at !== -1; at = text.indexOf('"', at + 1)) {
    let escapes = 0
    while (text.charCodeAt(at - 1 - escapes) === backslash) escapes += 1
    if (escapes % 2 === 0) return at
  }
  return -1
}

export function overBudget(which: keyof Budget, budget: Budget): WaybillError {
  const what = which === 'maxDepth' ? 'levels' : 'values'
  return new WaybillError(
    'TOO_LARGE',
    `The data has more than ${budget[which]} ${what}. Send less at once, or raise its reader's ${which}.`,
  )
}
