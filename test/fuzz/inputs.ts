/**
 * Bad input: bytes and texts at random, valid ones with a part changed, and few bytes that stand for much.
 */
import fc from 'fast-check'

/** Any text, with what breaks readers more often than chance would. */
export const text: fc.Arbitrary<string> = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 60 }),
  fc.string({ unit: 'grapheme', maxLength: 60 }),
  fc.constantFrom(
    '',
    '\u0000',
    '\ud800',
    '__proto__',
    'constructor',
    '\u202e',
    '\u001b[2J',
    '9223372036854775808',
    '-1',
    '1e400',
    'NaN',
  ),
  fc.nat({ max: 20_000 }).map((length) => 'x'.repeat(length)),
)

const hostileJson: fc.Arbitrary<string> = fc.oneof(
  fc
    .tuple(fc.constantFrom('[', '{"a":', '{"__proto__":', '[{"\\u0061":'), fc.nat({ max: 30_000 }))
    .map(([part, times]) => part.repeat(times)),
  fc.nat({ max: 100_000 }).map((times) => `["\\u0041",${'{},'.repeat(times)}1]`),
  fc.nat({ max: 2_000 }).map((levels) => '['.repeat(levels) + ']'.repeat(levels)),
  fc.constantFrom(
    '{"a":1,"a":2}',
    '9007199254740993',
    '[1e400]',
    '{"__proto__":{"x":1}}',
    '{"constructor":{"prototype":{}}}',
    '"\\ud800"',
    '"\\u0000"',
  ),
)

const json: fc.Arbitrary<string> = fc.oneof(fc.json({ stringUnit: 'binary' }), fc.json(), hostileJson)

export const bytes: fc.Arbitrary<Uint8Array> = fc.oneof(
  fc.uint8Array({ maxLength: 300 }),
  json.map((each) => Buffer.from(each)),
  text.map((each) => Buffer.from(each)),
  fc
    .tuple(fc.uint8Array({ minLength: 1, maxLength: 4 }), fc.nat({ max: 300_000 }))
    .map(([part, length]) => Buffer.alloc(length, part)),
)

/** Valid bytes, of which some are others, more or fewer. */
export function mutated(valid: fc.Arbitrary<Uint8Array>): fc.Arbitrary<Uint8Array> {
  const change = fc.record({ at: fc.nat(), remove: fc.nat({ max: 4 }), insert: fc.uint8Array({ maxLength: 6 }) })
  return fc.tuple(valid, fc.array(change, { maxLength: 4 })).map(([start, changes]) => {
    let result = Buffer.from(start)
    for (const { at, remove, insert } of changes) {
      const from = at % (result.length + 1)
      result = Buffer.concat([result.subarray(0, from), insert, result.subarray(from + remove)])
    }
    return result
  })
}

export function mutatedText(valid: fc.Arbitrary<string>): fc.Arbitrary<string> {
  return mutated(valid.map((each) => Buffer.from(each))).map((each) => Buffer.from(each).toString('latin1'))
}

/** What a header may hold at all. */
export const headerValue: fc.Arbitrary<string> = fc.oneof(
  fc.string({ unit: fc.integer({ min: 0x20, max: 0xff }).map((code) => String.fromCharCode(code)), maxLength: 80 }),
  fc.nat({ max: 9_000 }).map((length) => 'x'.repeat(length)),
)
