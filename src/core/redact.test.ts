import fc from 'fast-check'
import { expect, test, vi } from 'vitest'
import { redactedMessage, redactSecrets } from './redact.ts'

const examples: readonly (readonly [string, string])[] = [
  ['connect ECONNREFUSED postgres://ada:hunter2@10.0.0.7/pay', 'connect ECONNREFUSED postgres://ada:***@10.0.0.7/pay'],
  ['at postgres://ada:p@ss/w:rd@db/pay?x=1, again', 'at postgres://ada:***@db/pay?x=1, again'],
  ['DATABASE_URL=postgresql://ada@db/pay', 'DATABASE_URL=postgresql://ada@db/pay'],
  ['postgres://ada@x:secret@db/pay', 'postgres://***@db/pay'],
  ['https://ada:secret@example.com', 'https://***@example.com'],
  ['redis://:secret@cache:6379', 'redis://***@cache:6379'],
  ['https://example.com/a/b', 'https://example.com/a/b'],
  [`host=db password='my \\' secret' user=ada`, 'host=db password=*** user=ada'],
  ['password: x', 'password: ***'],
  ['{"password":"a \\" b","user":"ada"}', '{"password":***,"user":"ada"}'],
  ['"{\\"client_secret\\":\\"x y\\",\\"id\\":1}"', '"{\\"client_secret\\":***,\\"id\\":1}"'],
  ['PGPASSWORD=x node', 'PGPASSWORD=*** node'],
  ['api-key=abc&x=1', 'api-key=***&x=1'],
  ['Authorization: Bearer eyJsecret', 'Authorization: ***'],
  ['sent Bearer abcdefgh.ijk to it', 'sent Bearer *** to it'],
  ['cookie: sid=1; theme=dark\nnext', 'cookie: ***\nnext'],
  ['token eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln was refused', 'token *** was refused'],
  ['used sk_live_abcdefghijklmnop today', 'used *** today'],
  ['-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY----- tail', '*** tail'],
  ['Unexpected token } in JSON at position 3', 'Unexpected token } in JSON at position 3'],
  ['postgres://u:two words@h/db', 'postgres://u:***@h/db'],
  ['postgres://u:pa"ss@h/db', 'postgres://u:***@h/db'],
  ['postgres://u:p@ss wo"rd@h/db', 'postgres://u:***@h/db'],
  ['postgres://u:12 34@h/db', 'postgres://u:***@h/db'],
  ['https://user:tok%20en@h/x', 'https://***@h/x'],
  ['redis://:s3cret', 'redis://***'],
  ['login as ada:hunter2@10.0.0.7:5432 failed', 'login as ***@10.0.0.7:5432 failed'],
  ['http://db:8080/x failed, tell ops@example.com', 'http://db:8080/x failed, tell ops@example.com'],
  ['http://[::1]:8080 and postgres://h:5432/db', 'http://[::1]:8080 and postgres://h:5432/db'],
  ['file:///srv/app.ts:12:3 at node:internal/x:1:2', 'file:///srv/app.ts:12:3 at node:internal/x:1:2'],
  ['DB_PASSWORD=a,b;c&d rest', 'DB_PASSWORD=*** rest'],
  ['Server=db;Password=a;b,c;Database=x', 'Server=db;Password=***;Database=x'],
  ['sasl.jaas.config=x password="abc def";', 'sasl.jaas.config=x password=***;'],
  ['Cookie: a="b c"; sid=secret', 'Cookie: ***'],
  ['Authorization: Digest username="ada", response="beef"', 'Authorization: ***'],
  ['AccountKey=Zm9v+/==;EndpointSuffix=core', 'AccountKey=***;EndpointSuffix=core'],
  ['https://s.example/?sv=1&sig=ab%2Fcd&se=2', 'https://s.example/?sv=1&sig=***&se=2'],
  ['"private_key": "-----BEGIN PRIVATE KEY-----\\nMIIE\\n-----END"', '"private_key": ***'],
  ['The consistency token is of another service.', 'The consistency token is of another service.'],
]

test.each(examples)('of %j only %j is left', (text, left) => {
  expect(redactSecrets(text)).toBe(left)
})

/** What stands in secrets: odd characters too, but not the marks by which the carrier itself ends. */
const odd = fc.string({
  unit: fc.constantFrom(...Array.from('abcXYZ0189+/:!$%@.,;&=?#~^()[]{}|*_-')),
  minLength: 4,
  maxLength: 24,
})
const blanks = fc.string({ unit: fc.constantFrom(...Array.from('abcXYZ019 +/:!@.,;&#"`<>')), minLength: 4, maxLength: 24 })
const plain = fc.stringMatching(/^[A-Za-z0-9_.]{12,30}$/)
const around = fc.stringMatching(/^[ a-zA-Z0-9,.:;]{0,20}$/)
const of = (secrets: fc.Arbitrary<string>, ...carriers: readonly ((secret: string) => string)[]): fc.Arbitrary<string> =>
  fc.tuple(secrets, fc.constantFrom(...carriers)).map(([secret, carry]) => carry(`S3cr3t${secret}S3cr3t`))

const carried = fc.oneof(
  of(
    odd,
    (s) => `postgres://ada:${s}@db/pay`,
    (s) => `amqps://${s}@mq`,
    (s) => `https://ada:${s}@db.example:443/pay?x=1`,
    (s) => ` password='${s} ${s}'`,
    (s) => `{"api_key": "${s}"}`,
    (s) => `{\\"secret\\":\\"${s}\\"}`,
    (s) => `\nAuthorization: Basic ${s}\n`,
    (s) => `\nProxy-Authorization: Bearer ${s}\n`,
    (s) => `\nSet-Cookie: sid=${s}; HttpOnly\n`,
    (s) => `\ncookie: a="${s}"; b=${s}\n`,
    (s) => `?password=${s.replaceAll(/[;&][\w.-]*=/g, 'x')} `,
    (s) => `-----BEGIN EC PRIVATE KEY-----\n${s}\n${s}\n-----END EC PRIVATE KEY-----`,
  ),
  of(
    blanks,
    (s) => `postgres://ada:${s}@db/pay`,
    (s) => ` password='${s}' `,
    (s) => `connect to "redis://:${s}@cache:6379/0"`,
    (s) => `\nCookie: ${s}\n`,
  ),
  of(
    fc.stringMatching(/^[A-Za-z0-9]{12,30}$/),
    (s) => ` sk_live_${s} `,
    (s) => ` ghp_${s} AKIA${s} AIza${s} xoxb-${s} `,
  ),
  of(
    plain,
    (s) => ` Bearer ${s} `,
    (s) => ` bearer  ${s},`,
    (s) => ` Basic ${s}= `,
    (s) => ` eyJhbGciOiJIUzI1NiJ9.${s}.${s} `,
    (s) => `AWS_SECRET_ACCESS_KEY=${s}`,
    (s) => `x-amz-security-token: ${s}`,
    (s) => `session_id=${s}`,
    (s) => `host=db user=ada password=${s}`,
    (s) => ` ada:${s}@db.example `,
  ),
)

test('no secret of the corpus survives, wherever it stands', () => {
  fc.assert(
    fc.property(around, carried, around, (before, text, after) => {
      expect(redactSecrets(`${before} ${text}${after}`)).not.toContain('S3cr3t')
    }),
    { seed: 28, numRuns: 5_000 },
  )
})

test('text that is redacted already stays as it is', () => {
  fc.assert(
    fc.property(around, carried, around, (before, text, after) => {
      const once = redactSecrets(`${before} ${text} ${after}`)
      expect(redactSecrets(once)).toBe(once)
    }),
    { seed: 28, numRuns: 2_000 },
  )
})

test('what was thrown is told without its secrets, whatever it is', () => {
  for (const thrown of [new Error('password=x'), new AggregateError([new Error('password=x')], ''), 'password=x'])
    expect(redactedMessage(thrown)).toBe('password=***')
})

/** How many characters searches pass over: of what is called, as a pattern with bounds takes a bounded time at each place. */
function stepsOf(text: string): number {
  let steps = 0
  const { indexOf, lastIndexOf } = String.prototype
  const { exec } = RegExp.prototype
  const spies = [
    vi.spyOn(String.prototype, 'indexOf').mockImplementation(function (this: string, ...[what, from = 0]) {
      const found = indexOf.call(this, what, from)
      steps += 1 + (found === -1 ? this.length : found) - Math.min(from, this.length)
      return found
    }),
    vi.spyOn(String.prototype, 'lastIndexOf').mockImplementation(function (this: string, ...[what, from = this.length]) {
      const found = lastIndexOf.call(this, what, from)
      steps += 1 + Math.min(from, this.length) - Math.max(found, 0)
      return found
    }),
    vi.spyOn(RegExp.prototype, 'exec').mockImplementation(function (this: RegExp, on: string) {
      const from = this.global || this.sticky ? this.lastIndex : 0
      const found = exec.call(this, on)
      const end = found === null ? on.length : found.index + found[0].length
      steps += 1 + (this.sticky && found === null ? 0 : Math.max(0, end - from))
      return found
    }),
  ]
  try {
    redactSecrets(text)
  } finally {
    for (const spy of spies) spy.mockRestore()
  }
  return steps
}

test.each([
  'a',
  '://',
  'a://',
  '@',
  'a://b:c@',
  'password',
  'password=',
  'password="',
  "password='\\",
  'bearer ',
  'eyJ',
  '-----BEGIN ',
  ' ',
  '=',
  'token:\\"',
  '://"',
  '://@ ',
  '://a:b ',
  'a:b@',
  '@://',
  '://\n',
  'password=a,',
  'password=,b',
  'Cookie: "',
  '-----BEGIN -----END ',
])('its steps grow with the text, not with its square: %j', (part) => {
  const [short, long] = [20_000, 80_000].map((length) => stepsOf(part.repeat(Math.ceil(length / part.length)))) as [
    number,
    number,
  ]
  expect(long).toBeLessThan(5 * short + 1_000)
  expect(long).toBeLessThan(30 * 80_000)
})
