import fc from 'fast-check'
import { expect, test } from 'vitest'
import { atLeast, nearest, oneOf, refuseUnknown, resolve, wholeBetween, chosen, type Chosen } from './options.ts'

interface RelayOptions {
  readonly batchSize: number
  readonly leaseMs: number
  readonly ordering: 'aggregate' | 'lane'
  readonly label: string | undefined
}

const defaults: RelayOptions = { batchSize: 100, leaseMs: 5_000, ordering: 'aggregate', label: undefined }
const read = (given: object): RelayOptions =>
  resolve<RelayOptions>('relay', defaults, given, {
    batchSize: wholeBetween(1, 10_000),
    leaseMs: atLeast(1_000),
    ordering: oneOf('aggregate', 'lane'),
  })

test('defaults fill what is missing or undefined, and are not changed', () => {
  expect(read({})).toEqual(defaults)
  expect(read({ batchSize: undefined, leaseMs: 7_000 })).toEqual({ ...defaults, leaseMs: 7_000 })
  expect(defaults.leaseMs).toBe(5_000)
})

test('an option whose default is undefined is known', () => {
  expect(read({ label: 'a' }).label).toBe('a')
})

test.each([
  [{ batchsize: 3 }, 'relay.batchsize: unknown option. Did you mean "batchSize"? Known: batchSize, label, leaseMs, ordering.'],
  [{ leaseSeconds: 3 }, 'relay.leaseSeconds: unknown option. Known: batchSize, label, leaseMs, ordering.'],
  [{ odering: 'lane' }, 'relay.odering: unknown option. Did you mean "ordering"? Known: batchSize, label, leaseMs, ordering.'],
  [{ x: undefined }, 'relay.x: unknown option. Known: batchSize, label, leaseMs, ordering.'],
  [{ batchSize: 0 }, 'relay.batchSize: must be a whole number from 1 to 10000, got 0.'],
  [{ batchSize: 1.5 }, 'relay.batchSize: must be a whole number from 1 to 10000, got 1.5.'],
  [{ batchSize: '5' }, 'relay.batchSize: must be a whole number from 1 to 10000, got "5".'],
  [{ batchSize: Number.NaN }, 'relay.batchSize: must be a whole number from 1 to 10000, got NaN.'],
  [{ batchSize: null }, 'relay.batchSize: must be a whole number from 1 to 10000, got null.'],
  [{ leaseMs: 999 }, 'relay.leaseMs: must be a number, at least 1000, got 999.'],
  [{ leaseMs: Infinity }, 'relay.leaseMs: must be a number, at least 1000, got Infinity.'],
  [{ ordering: 'agregate' }, 'relay.ordering: must be one of "aggregate", "lane", got "agregate".'],
  [{ ordering: [] }, 'relay.ordering: must be one of "aggregate", "lane", got an array.'],
])('%o is refused with its sentence', (given, message) => {
  expect(() => read(given)).toThrow(expect.objectContaining({ code: 'INVALID_OPTION', message }))
})

test.each([[null], [undefined], [7], ['a'], [true]])('%o is no options object', (given) => {
  expect(() => read(given as never)).toThrow(/^relay: options must be an object, got /)
})

test('the ends of a range are within it', () => {
  expect(read({ batchSize: 1 }).batchSize).toBe(1)
  expect(read({ batchSize: 10_000, leaseMs: 1_000 }).batchSize).toBe(10_000)
})

test('names that every object inherits are unknown, too', () => {
  for (const name of ['constructor', 'toString', 'hasOwnProperty']) {
    expect(() => refuseUnknown('relay', { [name]: 1 }, ['topic'])).toThrow(`relay.${name}: unknown option.`)
  }
})

test('one slip of the finger in a name still finds the name', () => {
  const names = ['stopTimeoutMs', 'abortTimeoutMs', 'statementTimeoutMs', 'isolation', 'retries']
  fc.assert(
    fc.property(
      fc.constantFrom(...names),
      fc.nat(),
      fc.constantFrom('drop', 'double', 'replace', 'case'),
      (name, where, slip) => {
        const i = where % name.length
        const letter = name[i]!
        const typed = { drop: '', double: letter + letter, replace: '_', case: letter.toUpperCase() }[slip]
        expect(nearest(name.slice(0, i) + typed + name.slice(i + 1), names)).toBe(name)
      },
    ),
  )
})

test('a word that shares nothing suggests nothing', () => {
  expect(nearest('colour', ['stopTimeoutMs', 'retries'])).toBeUndefined()
  expect(nearest('x', ['id', 'to'])).toBeUndefined()
  expect(nearest('', ['id'])).toBeUndefined()
})

interface Filter {
  readonly eventId?: string | undefined
  readonly stream?: string | undefined
  readonly ids?: readonly string[] | undefined
}

const choose = (given: unknown): Filter => chosen<Filter>(['eventId', 'stream', 'ids'], given as Chosen<Filter>)

test.each([
  ['nothing', {}, 'it names nothing'],
  ['no filter', undefined, 'options must be an object'],
  ['a value that is missing', { eventId: undefined }, 'filter.eventId: it has no value'],
  ['a value that is missing beside another', { stream: 'x', eventId: undefined }, 'filter.eventId: it has no value'],
  ['null', { eventId: null }, 'it has no value'],
  ['an empty text', { eventId: '' }, 'it has no value'],
  ['a name that is misspelt', { eventID: '1' }, 'Did you mean "eventId"?'],
  ['all of some', { all: true, stream: 'x' }, 'stands alone'],
  ['not all', { all: false }, 'stands alone'],
  ['all as a text', { all: 'false' }, 'stands alone'],
])('a filter with %s is refused', (_what, given, message) => {
  expect(() => choose(given)).toThrow(
    expect.objectContaining({ code: 'INVALID_OPTION', message: expect.stringContaining(message) }),
  )
})

test('fields restrict, an empty list names none, and all is asked for by its name', () => {
  expect(choose({ stream: 'x', ids: [] })).toEqual({ stream: 'x', ids: [] })
  expect(choose({ all: true })).toEqual({})
})
