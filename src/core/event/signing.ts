/**
 * Signatures of messages: proof that the holder of a key wrote this message, for this topic, as it is.
 *
 * Signed are the topic, our own attributes, all headers of the event, and the body; of a claim check that is the reference with its
 * digest. Each part stands behind its length, so no two messages have the same text to sign. The ordering key is not signed: it
 * follows from the attributes, and brokers do not always keep it where they forward a message. The key's id and the signature travel as
 * attributes, and the names of the headers beside them: what others add on the way is not signed, and is taken away before a
 * reader sees it. The algorithm belongs to the key, never to the message.
 */
import {
  createPrivateKey,
  createPublicKey,
  hash,
  sign as signBytes,
  timingSafeEqual,
  verify as verifyBytes,
  type KeyObject,
} from 'node:crypto'
import { errorMessage, WaybillError } from '../errors.ts'
import { refuseUnknown } from '../options.ts'
import { assertStrongSecret } from '../secret.ts'

/** The part of a message that is signed. */
export interface SignableMessage {
  readonly topic: string
  readonly attributes: Readonly<Record<string, string>>
  readonly body: Uint8Array
}

export interface SignerOptions {
  /** Names the key for those who verify. */
  readonly keyId: string
  /** For HMAC-SHA256: what signers and verifiers share, 16 random bytes or more. @default none: a private key signs */
  readonly secret?: string | Uint8Array | undefined
  /** For Ed25519: the private key, as PEM or as a KeyObject; verifiers have the public one. @default none: a secret signs */
  readonly privateKey?: string | KeyObject | undefined
}

export interface VerifyingKey {
  /** As the signer has it. */
  readonly keyId: string
  /** The secret of HMAC-SHA256. @default none: a public key verifies */
  readonly secret?: string | Uint8Array | undefined
  /** The public key of Ed25519, as PEM or as a KeyObject. @default none: a secret verifies */
  readonly publicKey?: string | KeyObject | undefined
  /** The topics whose messages this key may sign. @default every topic */
  readonly topics?: readonly string[] | undefined
}

export interface VerifierOptions {
  /** All keys whose signatures count: while keys are changed, the old one and the new one. */
  readonly keys: readonly VerifyingKey[]
}

export interface Signer {
  readonly keyId: string
  /** The message with its signature. */
  sign<Message extends SignableMessage>(message: Message): Message
}

/** Why a message is not believed. */
export type Distrust = 'unsigned' | 'unknown_key' | 'forged'

/** What a signature proves: nothing, or that these attributes were signed. */
export type Verdict = { readonly distrust: Distrust } | { readonly attributes: SignableMessage['attributes'] }

export interface Verifier {
  verify(message: SignableMessage): Verdict
}

/** What a signature may add to a message, in bytes: the names of attributes, the key's id, the signature, the names of headers. */
export const signatureBytes = 1_280

const keyAttribute = 'waybill_key'
const signatureAttribute = 'waybill_signature'
/** A JSON array; left out where the event has no headers. */
const headersAttribute = 'waybill_signed_headers'
const own: ReadonlySet<string> = new Set([keyAttribute, signatureAttribute, headersAttribute])

const ownSigned = [
  'event_id',
  'event_type',
  'aggregate_type',
  'aggregate_id',
  'version',
  'schema_version',
  'occurred_at',
  'content_type',
] as const
const ownNames: ReadonlySet<string> = new Set(ownSigned)

/** A signer of messages, for `createRelay` and `createIngest`. */
export function createSigner(options: SignerOptions): Signer {
  refuseUnknown('signer', options, ['keyId', 'secret', 'privateKey'])
  const { keyId, secret, privateKey } = options
  assertKeyId('signer.keyId', keyId)
  assertOneKey('signer', { secret, privateKey })
  const make =
    secret === undefined
      ? ed25519Signature(keyId, readKey('signer.privateKey', privateKey, 'private'))
      : hmac('signer.secret', keyId, secret)
  return {
    keyId,
    sign: (message) => {
      const headers = Object.keys(message.attributes).filter((name) => !ownNames.has(name) && !own.has(name))
      const signature = make(message, headers)
      const { [headersAttribute]: _headers, ...attributes } = message.attributes
      const names = headers.length === 0 ? {} : { [headersAttribute]: JSON.stringify(headers) }
      return { ...message, attributes: { ...attributes, ...names, [keyAttribute]: keyId, [signatureAttribute]: signature } }
    },
  }
}

/** A verifier of messages, for `createConsumer`. */
export function createVerifier(options: VerifierOptions): Verifier {
  refuseUnknown('verifier', options, ['keys'])
  if (!Array.isArray(options.keys) || options.keys.length === 0)
    throw invalid('verifier.keys: must be a list of at least one key')
  const keys = new Map<string, Known>()
  for (const key of options.keys as readonly VerifyingKey[]) {
    const known = knownKey(key)
    if (keys.has(key.keyId)) throw invalid(`verifier.keys: two keys have the id ${key.keyId}`)
    keys.set(key.keyId, known)
  }
  return { verify: (message) => verify(keys, message) }
}

/** The same publisher, of messages with signatures. */
export function signedPublisher<Message extends SignableMessage, Options, Outcome>(
  publisher: {
    readonly maxBytes: number
    publish(messages: readonly Message[], options: Options): Promise<readonly Outcome[]>
  },
  signer: Signer | undefined,
): typeof publisher {
  if (signer === undefined) return publisher
  return {
    maxBytes: publisher.maxBytes - signatureBytes,
    publish: async (messages, options) => {
      const signed: Message[] = []
      for (const message of messages) {
        signed.push(signer.sign(message))
        // The event loop is not this batch's alone: a signature of Ed25519 takes a while.
        if (signed.length % 100 === 0) await new Promise(setImmediate)
      }
      return await publisher.publish(signed, options)
    },
  }
}

/** Says what is wrong with a signer among options, or `true`. */
export function isSigner(value: Signer | undefined): true | string {
  return value === undefined || typeof value.sign === 'function' || 'must be made by createSigner({ … })'
}

interface Known {
  readonly topics: ReadonlySet<string> | undefined
  readonly isRight: (message: SignableMessage, headers: readonly string[], signature: string) => boolean
}

function knownKey(key: VerifyingKey): Known {
  refuseUnknown('verifier.keys', key, ['keyId', 'secret', 'publicKey', 'topics'])
  const { keyId, secret, publicKey, topics } = key
  assertKeyId('verifier.keys.keyId', keyId)
  const what = `verifier.keys ${keyId}`
  assertOneKey(what, { secret, publicKey })
  if (topics !== undefined && (!Array.isArray(topics) || topics.length === 0))
    throw invalid(`${what}: topics must be a list of at least one topic`)
  const signs = topics === undefined ? undefined : new Set(topics)
  if (secret === undefined)
    return { topics: signs, isRight: ed25519Check(keyId, readKey(`${what}.publicKey`, publicKey, 'public')) }
  const make = hmac(`${what}.secret`, keyId, secret)
  return { topics: signs, isRight: (message, headers, signature) => isEqualText(signature, make(message, headers)) }
}

function verify(keys: ReadonlyMap<string, Known>, message: SignableMessage): Verdict {
  const { attributes } = message
  const [keyId, signature] = [attributes[keyAttribute], attributes[signatureAttribute]]
  if (keyId === undefined && signature === undefined) return { distrust: 'unsigned' }
  if (typeof keyId !== 'string' || typeof signature !== 'string') return { distrust: 'forged' }
  const key = keys.get(keyId)
  if (key === undefined) return { distrust: 'unknown_key' }
  const headers = readHeaders(attributes)
  if (headers === undefined || key.topics?.has(message.topic) === false) return { distrust: 'forged' }
  if (!key.isRight(message, headers, signature)) return { distrust: 'forged' }
  return { attributes: signedOf(attributes, headers) }
}

/** The most that 80 headers take. */
const longestHeaders = 32_768

/** The names of the headers that are signed, if that is what they are. */
function readHeaders(attributes: SignableMessage['attributes']): readonly string[] | undefined {
  const text = attributes[headersAttribute]
  if (text === undefined) return []
  if (typeof text !== 'string' || text.length > longestHeaders) return undefined
  try {
    const names: unknown = JSON.parse(text)
    if (!Array.isArray(names) || !names.every((name) => typeof name === 'string' && Object.hasOwn(attributes, name)))
      return undefined
    return names as readonly string[]
  } catch {
    return undefined
  }
}

/** The attributes without those that others have added. */
function signedOf(attributes: SignableMessage['attributes'], headers: readonly string[]): SignableMessage['attributes'] {
  const isSigned = (name: string): boolean => ownNames.has(name) || own.has(name) || headers.includes(name)
  for (const name in attributes)
    if (!isSigned(name)) return Object.fromEntries(Object.entries(attributes).filter(([each]) => isSigned(each)))
  return attributes
}

/**
 * What is signed, before the body: each text behind its length, `-` for what is not there. The key is among them, so that a
 * signature counts under its own key's id alone.
 */
function textOf(keyId: string, { topic, attributes, body }: SignableMessage, headers: readonly string[]): string {
  let text = `waybill-signature-1${part(keyId)}${part(topic)}`
  for (const name of ownSigned) text += part(attributes[name])
  text += `,${headers.length}`
  for (const name of headers) text += part(name) + part(attributes[name])
  return `${text},${body.byteLength};`
}

function part(text: string | undefined): string {
  return text === undefined ? ',-' : `,${text.length}:${text}`
}

const blockBytes = 64
const digestBytes = 32
const scratchBytes = 65_536
/** Of 32 bytes as base64url. */
const macLength = 43

type Make = (message: SignableMessage, headers: readonly string[]) => string

/**
 * HMAC-SHA256 by two one-shot hashes over pads that are ready, which costs much less than `createHmac`. What is hashed is put together
 * behind the inner pad, in memory of the key's own.
 */
function hmac(what: string, keyId: string, secret: string | Uint8Array): Make {
  assertStrongSecret(what, secret)
  const given = Buffer.from(secret as Uint8Array)
  const key = given.length > blockBytes ? hash('sha256', given, 'buffer') : given
  const scratch = Buffer.alloc(scratchBytes)
  const outer = Buffer.alloc(blockBytes + digestBytes)
  for (let place = 0; place < blockBytes; place += 1) {
    scratch[place] = (key[place] ?? 0) ^ 0x36
    outer[place] = (key[place] ?? 0) ^ 0x5c
  }
  return (message, headers) => {
    const text = textOf(keyId, message, headers)
    const most = blockBytes + text.length * 3 + message.body.byteLength
    const inner = most <= scratchBytes ? scratch : Buffer.alloc(most)
    if (inner !== scratch) scratch.copy(inner, 0, 0, blockBytes)
    const end = putTogether(inner, blockBytes, text, message.body)
    outer.write(hash('sha256', inner.subarray(0, end), 'binary'), blockBytes, 'latin1')
    return hash('sha256', outer, 'base64url')
  }
}

const [given, right] = [Buffer.alloc(macLength), Buffer.alloc(macLength)]

/** Without telling by its time how much of it is right; in memory that is there already. */
function isEqualText(signature: string, mac: string): boolean {
  if (signature.length !== macLength) return false
  given.write(signature, 'latin1')
  right.write(mac, 'latin1')
  return timingSafeEqual(given, right) && signature === mac
}

function putTogether(into: Buffer, start: number, text: string, body: Uint8Array): number {
  const bodyStart = start + into.write(text, start, 'utf8')
  into.set(body, bodyStart)
  return bodyStart + body.byteLength
}

function bytesOf(keyId: string, message: SignableMessage, headers: readonly string[]): Uint8Array {
  const text = textOf(keyId, message, headers)
  const bytes = Buffer.alloc(text.length * 3 + message.body.byteLength)
  return bytes.subarray(0, putTogether(bytes, 0, text, message.body))
}

function ed25519Signature(keyId: string, key: KeyObject): Make {
  return (message, headers) => signBytes(null, bytesOf(keyId, message, headers), key).toString('base64url')
}

function ed25519Check(keyId: string, key: KeyObject): Known['isRight'] {
  return (message, headers, signature) =>
    verifyBytes(null, bytesOf(keyId, message, headers), key, Buffer.from(signature, 'base64url'))
}

function readKey(what: string, given: string | KeyObject | undefined, type: 'private' | 'public'): KeyObject {
  let key: KeyObject | undefined
  try {
    if (typeof given === 'string') key = type === 'private' ? createPrivateKey(given) : createPublicKey(given)
    else key = given
  } catch (cause) {
    throw new WaybillError('INVALID_OPTION', `${what}: cannot be read: ${errorMessage(cause)}. Pass it as PEM.`, { cause })
  }
  if (key?.type !== type || key.asymmetricKeyType !== 'ed25519')
    throw invalid(`${what}: must be the ${type} key of an Ed25519 pair (openssl genpkey -algorithm ed25519)`)
  return key
}

function assertKeyId(what: string, keyId: unknown): void {
  if (typeof keyId === 'string' && /^[A-Za-z0-9._-]{1,64}$/.test(keyId)) return
  throw invalid(`${what}: must be 1 to 64 letters, digits, ".", "_" and "-", such as "orders-2026-11"`)
}

/** Both or none would leave open which algorithm counts. */
function assertOneKey(what: string, keys: Readonly<Record<string, unknown>>): void {
  if (Object.values(keys).filter((key) => key !== undefined).length === 1) return
  throw invalid(`${what}: pass either ${Object.keys(keys).join(' or ')}`)
}

function invalid(message: string): WaybillError {
  return new WaybillError('INVALID_OPTION', `${message}.`)
}
