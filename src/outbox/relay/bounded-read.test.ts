import fc from 'fast-check'
import { expect, test } from 'vitest'
import { withinBytes } from './bounded-read.ts'
import type { FoundRow } from '../tables/dispatch.sql.ts'

const inlineBytes = 10

function row(seq: number, bytes: number, more: Partial<FoundRow> = {}): FoundRow {
  const body = bytes <= inlineBytes ? { payload: new Uint8Array(bytes), headers: '' } : { payload: null, headers: null }
  return { lane: seq % 4, seq: String(seq), event_id: `e${seq}`, topic: 't', blocked: false, bytes, ...body, ...more } as FoundRow
}

/** The rows that are kept, and the bodies that were asked for. */
async function kept(found: readonly FoundRow[], bytes: number, gone: readonly string[] = []): Promise<[string[], string[]]> {
  const asked: string[] = []
  const rows = await withinBytes(found, bytes, (ids) => {
    asked.push(...ids)
    const left = ids.filter((id) => !gone.includes(id))
    return Promise.resolve(left.map((id) => ({ event_id: id, payload: new Uint8Array(1), headers: '{}' })))
  })
  const bodiless = rows.filter(({ topic, blocked, payload }) => topic !== null && !blocked && (payload as unknown) === null)
  expect(bodiless).toEqual([])
  return [rows.map(({ event_id: id }) => id), asked]
}

test('small rows are complete as they are', async () => {
  expect(await kept([row(2, 10), row(1, 10)], 15)).toEqual([['e2', 'e1'], []])
})

test('of large rows the oldest that fit are kept, and only their bodies are read', async () => {
  expect(await kept([row(4, 10), row(8, 400), row(1, 500), row(9, 500), row(10, 1)], 1_000)).toEqual([
    ['e1', 'e4', 'e8'],
    ['e1', 'e8'],
  ])
})

test('one event that is too large alone is kept nevertheless', async () => {
  expect(await kept([row(2, 5_000), row(1, 4_000)], 1_000)).toEqual([['e1'], ['e1']])
})

test('rows that are only held need no body, and missing events have none', async () => {
  const held = row(1, 5_000, { blocked: true })
  const missing = row(2, 0, { topic: null, payload: null })
  expect(await kept([held, missing, row(3, 600)], 1_000)).toEqual([['e1', 'e2', 'e3'], ['e3']])
})

test('nothing goes out behind an event that went away between the two looks', async () => {
  expect(await kept([row(1, 100), row(2, 100), row(3, 1)], 1_000, ['e2'])).toEqual([['e1'], ['e1', 'e2']])
})

test('whatever is found, no lane is left with a gap, and the bound holds', async () => {
  const sizes = fc.array(fc.record({ seq: fc.nat(1_000), bytes: fc.nat(100) }), { minLength: 1, maxLength: 40 })
  await fc.assert(
    fc.asyncProperty(sizes, fc.integer({ min: 50, max: 1_000 }), async (all, bytes) => {
      const found = [...new Map(all.map((each) => [each.seq, row(each.seq, each.bytes)])).values()]
      // As many small rows as can be found at once always fit.
      fc.pre(found.length * inlineBytes <= bytes)
      const ids = new Set((await kept(found, bytes))[0])
      const here = found.filter(({ event_id: id }) => ids.has(id))
      const sum = here.reduce((total, each) => total + each.bytes, 0)
      expect(here.length === 1 || sum <= bytes).toBe(true)
      for (const { lane, seq, event_id: id } of found) {
        if (ids.has(id)) continue
        expect(here.filter((other) => other.lane === lane && Number(other.seq) > Number(seq))).toEqual([])
      }
    }),
  )
})
