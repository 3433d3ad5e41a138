/**
 * What was asked and decided in one run, kept so that no attempt can leave traces in it for the next one.
 *
 *   plain objects and lists            frozen to the bottom; every attempt gets the same
 *   Map, Set, Date, bytes, URL, forms  cannot be frozen: every attempt gets a copy, together with what holds it
 *   instances with a toJSON            as they are; one that an attempt has changed is found out before the next attempt
 *   other instances                    refused in a plan: nothing shows what an attempt does to them
 *
 * Functions, files and blobs are handed on. The input keeps its instances: it is what came.
 */
import { canonicalText, isPlainObject } from '../../core/encoding/canonical.ts'
import { WaybillError } from '../../core/errors.ts'

export interface Decided {
  /** Freezes what was asked: an input, or metadata. */
  readonly keepInput: <Value>(value: Value) => Value
  /** Freezes what a command decided; INVALID_OPTION if it holds what can neither be frozen nor copied nor compared. */
  readonly keepPlan: <Value>(command: string, value: Value) => Value
  /** How an attempt gets what was kept. INVALID_OPTION if an earlier attempt has changed an instance. */
  readonly handOut: () => <Value>(value: Value) => Value
}

type Copier = (value: object) => object

interface Instance {
  readonly value: object
  readonly what: string
  readonly text: string
}

export function createDecided(): Decided {
  const frozen = new Set<object>()
  const inPlans = new Set<object>()
  const instances: Instance[] = []
  let isAllPlain = true

  const keep = (value: unknown, what: string | undefined): void => {
    if (typeof value !== 'object' || value === null) return
    const seen = what === undefined || isAllPlain ? frozen : inPlans
    if (seen.has(value)) return
    seen.add(value)
    if (Array.isArray(value) || isPlainObject(value)) {
      frozen.add(Object.freeze(value))
      // Goes on below what it finds frozen: others freeze only the outside.
      for (const [name, each] of Object.entries(value)) keep(each, what === undefined ? undefined : `${what}.${name}`)
      return
    }
    isAllPlain = false
    if (copierOf(value) !== undefined) {
      if (value instanceof Map || value instanceof Set)
        for (const each of value instanceof Map ? [...value].flat() : value)
          keep(each, what === undefined ? undefined : `${what}[…]`)
    } else if (what !== undefined && !(value instanceof Blob)) instances.push({ value, what, text: textOf(value, what) })
  }
  return {
    keepInput: (value) => {
      keep(value, undefined)
      return value
    },
    keepPlan: (command, value) => {
      keep(value, `${command}: plan`)
      return value
    },
    handOut: () => {
      for (const { value, what, text } of instances) if (textOf(value, what) !== text) throw changed(what)
      if (isAllPlain) return (value) => value
      const copies = new Map<object, object>()
      return (value) => copy(value, copies) as typeof value
    },
  }
}

/** Plain data that holds nothing to copy stays what it is: the handles of children are known by it. */
function copy(value: unknown, copies: Map<object, object>): unknown {
  if (typeof value !== 'object' || value === null) return value
  const known = copies.get(value)
  if (known !== undefined) return known
  const copier = copierOf(value)
  if (value instanceof Map) {
    const map = new Map<unknown, unknown>()
    copies.set(value, map)
    for (const [name, each] of value) map.set(copy(name, copies), copy(each, copies))
    return map
  }
  if (value instanceof Set) {
    const set = new Set<unknown>()
    copies.set(value, set)
    for (const each of value) set.add(copy(each, copies))
    return set
  }
  if (copier !== undefined) {
    const own = copier(value)
    copies.set(value, own)
    return own
  }
  if (!Array.isArray(value) && !isPlainObject(value)) return value
  return copyPlain(value, copies)
}

function copyPlain(value: object, copies: Map<object, object>): object {
  const own: object = Array.isArray(value) ? [] : (Object.create(Object.getPrototypeOf(value)) as object)
  copies.set(value, own)
  let isSame = true
  for (const [name, each] of Object.entries(value)) {
    const next = copy(each, copies)
    isSame &&= next === each
    Object.defineProperty(own, name, { value: next, enumerable: true, writable: true, configurable: true })
  }
  if (!isSame) return Object.freeze(own)
  copies.set(value, value)
  return value
}

/** How the platform's own mutable values are copied; `undefined` for anything else, and for classes that extend them. */
function copierOf(value: object): Copier | undefined {
  return copiers.get(Object.getPrototypeOf(value) as object)
}

const copiers = new Map<object, Copier>([
  [Map.prototype, (value) => new Map(value as Map<unknown, unknown>)],
  [Set.prototype, (value) => new Set(value as Set<unknown>)],
  [Date.prototype, (value) => new Date(value as Date)],
  [ArrayBuffer.prototype, (value) => (value as ArrayBuffer).slice(0)],
  [Buffer.prototype, (value) => Buffer.from(value as Buffer)],
  [DataView.prototype, copyView],
  [URL.prototype, (value) => new URL(value)],
  [URLSearchParams.prototype, (value) => new URLSearchParams(value as URLSearchParams)],
  [FormData.prototype, copyForm],
  [RegExp.prototype, (value) => new RegExp(value as RegExp)],
])
for (const view of [
  Int8Array,
  Uint8Array,
  Uint8ClampedArray,
  Int16Array,
  Uint16Array,
  Int32Array,
  Uint32Array,
  Float32Array,
  Float64Array,
  BigInt64Array,
  BigUint64Array,
])
  copiers.set(view.prototype, (value) => (value as Uint8Array).slice())

function copyView(value: object): DataView {
  const { buffer, byteOffset, byteLength } = value as DataView
  return new DataView(buffer.slice(byteOffset, byteOffset + byteLength))
}

function copyForm(value: object): FormData {
  const form = new FormData()
  for (const [name, each] of value as FormData) form.append(name, each)
  return form
}

function textOf(value: object, what: string): string {
  const { toJSON } = value as { readonly toJSON?: unknown }
  if (typeof toJSON === 'function') return canonicalText(toJSON.call(value), { what: `${what}.toJSON()` })
  throw new WaybillError(
    'INVALID_OPTION',
    `${what} is an instance of ${String(value.constructor?.name)}: an attempt could change it, and the next one would find it changed. Plan plain data.`,
  )
}

function changed(what: string): WaybillError {
  return new WaybillError(
    'INVALID_OPTION',
    `${what} was changed by an attempt, so the next one would do something else than was planned. It was not made; change nothing of the plan.`,
  )
}
