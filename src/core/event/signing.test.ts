import { createHash, generateKeyPairSync, randomBytes } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import { createSigner, createVerifier, signedPublisher, type SignableMessage, type Verifier } from './signing.ts'

const secret = createHash('sha256').update('waybill').digest()
const privateKey = `-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g
-----END PRIVATE KEY-----`
const publicKey = `-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=
-----END PUBLIC KEY-----`

const message: SignableMessage = {
  topic: 'order.events',
  attributes: {
    traceparent: '00-a-b-01',
    event_id: '0190b7f2-0000-7000-8000-000000000001',
    event_type: 'Paid',
    aggregate_type: 'order',
    aggregate_id: 'Zoë/1',
    version: '7',
    schema_version: '1',
    occurred_at: '2026-01-02T03:04:05.000006Z',
    content_type: 'application/json',
  },
  body: Buffer.from('{"total":30}'),
}

const pairs = {
  'HMAC-SHA256': { signer: createSigner({ keyId: 'k1', secret }), verifier: createVerifier({ keys: [{ keyId: 'k1', secret }] }) },
  Ed25519: {
    signer: createSigner({ keyId: 'k1', privateKey }),
    verifier: createVerifier({ keys: [{ keyId: 'k1', publicKey }] }),
  },
}

const distrust = (verifier: Verifier, forged: SignableMessage): string | undefined => {
  const verdict = verifier.verify(forged)
  return 'distrust' in verdict ? verdict.distrust : undefined
}
const withAttributes = (of: SignableMessage, changed: Record<string, string | undefined>): SignableMessage => ({
  ...of,
  attributes: Object.fromEntries(
    Object.entries({ ...of.attributes, ...changed }).filter((each): each is [string, string] => each[1] !== undefined),
  ),
})

// Made by Python's hmac and by the key of the first vector of RFC 8032, from the text that the guide describes.
test('signatures are those of another implementation', () => {
  const signatureOf = (options: Parameters<typeof createSigner>[0]): string | undefined =>
    createSigner(options).sign(message).attributes['waybill_signature']
  expect(signatureOf({ keyId: 'k1', secret })).toBe('W1jWORuHYGnDOMSPcmWePxuSeQgOFqIRkxV7GLtEBaI')
  const long = Buffer.concat(['a', 'b'].map((text) => createHash('sha512').update(text).digest()))
  expect(signatureOf({ keyId: 'k1', secret: long })).toBe('_DIZXmYzMNUfrbwnDldVFbCR1fV-csJiNBrh4Km1m4U')
  expect(signatureOf({ keyId: 'k1', privateKey })).toBe(
    '0iWOJvMp_rs_qCK2fD18Jb0S6CMJxl2vGjiT3q01eqyL5ajc5VT71Gl0z5K2cTd48W-FJUrlaW-BwDd5CPnaBA',
  )
})

describe.each(Object.entries(pairs))('%s', (_algorithm, { signer, verifier }) => {
  test('a message is believed as it was signed, of any size', () => {
    for (const bytes of [0, 1, 63, 64, 65_000, 65_536, 300_000]) {
      const signed = signer.sign({ ...message, body: randomBytes(bytes) })
      expect(verifier.verify(signed)).toEqual({ attributes: signed.attributes })
    }
  })

  test('no attribute, header or topic can be changed, added to or left out, and no bit of the body', () => {
    const signed = signer.sign(message)
    for (const [name, value] of Object.entries(signed.attributes)) {
      const isKey = name === 'waybill_key'
      expect(distrust(verifier, withAttributes(signed, { [name]: `${value}x` }))).toBe(isKey ? 'unknown_key' : 'forged')
      expect(distrust(verifier, withAttributes(signed, { [name]: undefined }))).toBe('forged')
    }
    expect(distrust(verifier, { ...signed, topic: 'refund.events' })).toBe('forged')
    for (let bit = 0; bit < message.body.byteLength * 8; bit += 1) {
      const body = Buffer.from(message.body)
      body[bit >> 3] = (body[bit >> 3] ?? 0) ^ (1 << (bit & 7))
      expect(distrust(verifier, { ...signed, body })).toBe('forged')
    }
  })

  test('what is not signed is told from what is forged', () => {
    expect(distrust(verifier, message)).toBe('unsigned')
    const signed = signer.sign(message)
    for (const headers of ['', '{}', '[1]', '["__proto__"]', '["traceparent","traceparent"]', '['.repeat(100_000)])
      expect(distrust(verifier, withAttributes(signed, { waybill_signed_headers: headers }))).toBe('forged')
  })

  test('what others add on the way is taken away, and what was signed is left', () => {
    const signed = signer.sign(message)
    const added = withAttributes(signed, { content_hash: 'f'.repeat(32), googclient_trace: 'x' })
    expect(verifier.verify(added)).toEqual({ attributes: signed.attributes })
  })

  test('a message that is published again is signed anew, by the key of the one who does', () => {
    const again = createSigner({ keyId: 'k2', secret: randomBytes(32) }).sign(signer.sign(message))
    expect(distrust(verifier, again)).toBe('unknown_key')
    expect(signer.sign(again)).toEqual(signer.sign(message))
  })
})

test('texts that run into each other are signed as different ones', () => {
  const { signer, verifier } = pairs['HMAC-SHA256']
  const signed = signer.sign(withAttributes(message, { a: 'bc', ab: 'c' }))
  const shifted = withAttributes(signed, { event_type: 'Pai', aggregate_type: 'dorder' })
  expect(distrust(verifier, shifted)).toBe('forged')
  const split = withAttributes(message, { event_type: 'Paid,order', aggregate_type: 'b' })
  const joined = withAttributes(signer.sign(split), { event_type: 'Paid', aggregate_type: 'order,b' })
  expect(distrust(verifier, joined)).toBe('forged')
  expect(distrust(verifier, withAttributes(signed, { a: 'c', ab: 'bc' }))).toBe('forged')
  const moved = { ...withAttributes(signed, { content_type: 'application/json{' }), body: signed.body.subarray(1) }
  expect(distrust(verifier, moved)).toBe('forged')
})

describe('keys', () => {
  test('are changed without a gap: both count while both are among the keys, and the old one no longer afterwards', () => {
    const next = randomBytes(32)
    const [old, young] = [pairs['HMAC-SHA256'].signer, createSigner({ keyId: 'k2', secret: next })]
    const both = createVerifier({
      keys: [
        { keyId: 'k1', secret },
        { keyId: 'k2', secret: next },
      ],
    })
    expect([old, young].map((signer) => distrust(both, signer.sign(message)))).toEqual([undefined, undefined])
    const after = createVerifier({ keys: [{ keyId: 'k2', secret: next }] })
    expect([old, young].map((signer) => distrust(after, signer.sign(message)))).toEqual(['unknown_key', undefined])
  })

  test('sign for their topics alone', () => {
    const verifier = createVerifier({ keys: [{ keyId: 'k1', secret, topics: ['refund.events'] }] })
    const { signer } = pairs['HMAC-SHA256']
    expect(distrust(verifier, signer.sign(message))).toBe('forged')
    expect(distrust(verifier, signer.sign({ ...message, topic: 'refund.events' }))).toBeUndefined()
  })

  test('have one algorithm each: a public key is no secret of the other one', () => {
    const confused = createSigner({ keyId: 'k1', secret: publicKey })
    expect(distrust(pairs.Ed25519.verifier, confused.sign(message))).toBe('forged')
  })

  test('of others count for nothing', () => {
    const { privateKey: another } = generateKeyPairSync('ed25519')
    expect(distrust(pairs.Ed25519.verifier, createSigner({ keyId: 'k1', privateKey: another }).sign(message))).toBe('forged')
    const other = createSigner({ keyId: 'k1', secret: randomBytes(32) })
    expect(distrust(pairs['HMAC-SHA256'].verifier, other.sign(message))).toBe('forged')
  })

  test.each<[string, () => unknown]>([
    ['signer.secret: the secret has less than 128 bits', () => createSigner({ keyId: 'k1', secret: 'a'.repeat(40) })],
    ['signer: pass either secret or privateKey', () => createSigner({ keyId: 'k1' })],
    ['signer: pass either secret or privateKey', () => createSigner({ keyId: 'k1', secret, privateKey })],
    ['signer.keyId: must be 1 to 64 letters', () => createSigner({ keyId: 'a b', secret })],
    [
      'signer.privateKey: must be the private key of an Ed25519 pair',
      () => createSigner({ keyId: 'k1', privateKey: rsa.privateKey }),
    ],
    ['signer.privateKey: cannot be read', () => createSigner({ keyId: 'k1', privateKey: 'nonsense' })],
    ['signer.key: unknown option', () => createSigner({ keyId: 'k1', key: secret } as never)],
    ['verifier.keys: must be a list of at least one key', () => createVerifier({ keys: [] })],
    ['verifier.keys k1: pass either secret or publicKey', () => createVerifier({ keys: [{ keyId: 'k1' }] })],
    [
      'verifier.keys: two keys have the id k1',
      () =>
        createVerifier({
          keys: [
            { keyId: 'k1', secret },
            { keyId: 'k1', publicKey },
          ],
        }),
    ],
    ['verifier.keys k1: topics must be a list', () => createVerifier({ keys: [{ keyId: 'k1', secret, topics: [] }] })],
    ['verifier.keys.privateKey: unknown option', () => createVerifier({ keys: [{ keyId: 'k1', privateKey } as never] })],
  ])('are refused where they cannot be right: %s', (why, make) => {
    expect(make).toThrow(why)
  })
})

const rsa = generateKeyPairSync('rsa', { modulusLength: 2048 })

test('a publisher of signed messages leaves room for the signature, and one without a signer is as it was', async () => {
  const sent: SignableMessage[] = []
  const publisher = {
    maxBytes: 10_000,
    publish: (messages: readonly SignableMessage[], _options: undefined) => {
      sent.push(...messages)
      return Promise.resolve(messages.map(() => 'confirmed'))
    },
  }
  const { signer, verifier } = pairs['HMAC-SHA256']
  expect(signedPublisher(publisher, undefined)).toBe(publisher)
  const signing = signedPublisher(publisher, signer)
  expect(signing.maxBytes).toBeLessThan(10_000)
  const messages = Array.from({ length: 250 }, (_, n) => withAttributes(message, { version: String(n) }))
  expect(await signing.publish(messages, undefined)).toHaveLength(250)
  expect(sent.map(({ attributes }) => attributes['version'])).toEqual(messages.map(({ attributes }) => attributes['version']))
  expect(sent.every((each) => distrust(verifier, each) === undefined)).toBe(true)
})
