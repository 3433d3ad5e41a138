import fc from 'fast-check'
import { expect, test } from 'vitest'
import { decodeRecords, encodeRecord } from './record.ts'
import type { Record } from './record.ts'

const message = fc.record({
  number: fc.nat(),
  publishMs: fc.nat(),
  isAcked: fc.boolean(),
  bytes: fc.uint8Array({ maxLength: 40 }).map((bytes) => Buffer.from(bytes)),
})
const messages = fc.array(message, { maxLength: 5 })

const record: fc.Arbitrary<Record> = fc.oneof(
  fc.record({ kind: fc.constant('put' as const), type: fc.constant('topic' as const), name: fc.string(), value: fc.jsonValue() }),
  fc.record({ kind: fc.constant('remove' as const), type: fc.constant('policy' as const), name: fc.string() }),
  fc.record({ kind: fc.constant('publish' as const), topic: fc.string(), messages }),
  fc.record({ kind: fc.constant('keep' as const), topic: fc.string(), messages }),
  fc.record({ kind: fc.constant('reset' as const), subscription: fc.string(), messages }),
  fc.record({ kind: fc.constant('settle' as const), subscription: fc.string(), numbers: fc.array(fc.nat()) }),
  fc.record({ kind: fc.constant('snapshot' as const), resource: fc.jsonValue(), takenAt: fc.nat(), messages }),
)

const encode = (records: readonly Record[]): Buffer => Buffer.concat(records.flatMap((one) => encodeRecord(one)))

/** JSON has no negative zero. */
const normal = (value: unknown): unknown => JSON.parse(JSON.stringify(value)) as unknown

test('what was written is read back', () => {
  fc.assert(
    fc.property(fc.array(record, { maxLength: 8 }), (records) => {
      expect(normal([...decodeRecords(encode(records))])).toEqual(normal(records))
    }),
  )
})

test('a log cut short anywhere reads as the whole records before the cut', () => {
  fc.assert(
    fc.property(fc.array(record, { minLength: 1, maxLength: 5 }), fc.nat(), (records, where) => {
      const bytes = encode(records)
      const cut = where % bytes.length
      const whole = [...decodeRecords(bytes.subarray(0, cut))]
      expect(normal(whole)).toEqual(normal(records.slice(0, whole.length)))
      expect(encode(whole).length).toBeLessThanOrEqual(cut)
      const next = records[whole.length] as Record
      expect(encode(whole).length + encode([next]).length).toBeGreaterThan(cut)
    }),
  )
})

test('a damaged byte ends the reading before its record', () => {
  fc.assert(
    fc.property(
      fc.array(record, { minLength: 2, maxLength: 4 }),
      fc.nat(),
      fc.integer({ min: 1, max: 255 }),
      (records, where, flip) => {
        const bytes = encode(records)
        const first = encode(records.slice(0, 1)).length
        const at = first + (where % (bytes.length - first))
        bytes[at] = (bytes[at] as number) ^ flip
        const read = [...decodeRecords(bytes)]
        expect(normal(read)).toEqual(normal(records.slice(0, read.length)))
        expect(read.length).toBeLessThan(records.length)
      },
    ),
  )
})
