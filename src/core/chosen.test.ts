import { expect, test } from 'vitest'
import { chosen, type Chosen } from './chosen.ts'

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
