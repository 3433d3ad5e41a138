import { expect, test } from 'vitest'
import { parseFilter } from './filter.ts'

const event = new Map([
  ['name', 'com'],
  ['region', 'europe-west1'],
  ['iana.org/language_tag', 'en'],
  ['empty', ''],
])

test.each([
  ['', true],
  ['attributes:name', true],
  ['attributes:other', false],
  ['attributes:"iana.org/language_tag"', true],
  ['attributes.name = "com"', true],
  ['attributes.name="org"', false],
  ['attributes.empty = ""', true],
  ['attributes.other = ""', false],
  ['attributes.name != "com"', false],
  ['attributes.name != "org"', true],
  ['attributes.other != "x"', true],
  ['hasPrefix(attributes.region, "europe-")', true],
  ['hasPrefix(attributes.region, "us-")', false],
  ['hasPrefix(attributes.other, "")', false],
  ['NOT attributes:name', false],
  ['-attributes:other', true],
  ['NOT NOT attributes:name', true],
  ['attributes:name AND attributes:region AND attributes:other', false],
  ['attributes:other OR attributes:name OR attributes:none', true],
  ['attributes:name AND NOT (attributes.name = "org" OR attributes.name = "net")', true],
  ['(attributes:other OR attributes:name) AND (attributes:region)', true],
  ['attributes.name = "c\\"om"', false],
])('filter %s matches: %s', (filter, matches) => {
  expect(parseFilter(filter)(event)).toBe(matches)
})

test.each([
  'attributes',
  'attributes.name',
  'attributes.name = com',
  'attributes.name == "com"',
  'attributes.name > "com"',
  'data = "x"',
  'attributes:name AND',
  'attributes:a AND attributes:b OR attributes:c',
  'attributes:a and attributes:b',
  '(attributes:a',
  'attributes:a)',
  'hasPrefix(attributes.a)',
  'attributes.name = "unclosed',
  `attributes:${'a'.repeat(256)}`,
])('filter %s is refused', (filter) => {
  expect(() => parseFilter(filter)).toThrow(/[Ff]ilter/)
})
