/**
 * Encryption through the two hooks: a codec for the data of events, and one for the answers of commands.
 *
 * Sealed data is bound to its aggregate, event type and schema version: moved to another it does not open. Not to its version, which the
 * database gives later; signed messages are. An answer is bound to its command, principal and request id.
 */
import { WaybillError, type Codec, type EventContext, type ResponseCodec } from 'waybill'
import { open, seal, type DataKeys, type KeyOwner } from './data-keys.ts'

export interface SealedOptions {
  readonly keys: DataKeys
  /** The data that stands in for what was shredded, in the shape of that schema version. @default the event is refused */
  readonly shredded?: (schemaVersion: number) => unknown
}

/** Encrypts what a codec encodes. */
export function sealed<Input, Output>(codec: Codec<Input, Output>, { keys, shredded }: SealedOptions): Codec<Input, Output> {
  return {
    contentType: 'application/vnd.example.sealed',
    validate: (data) => codec.validate(data),
    encode: async (data, of) => await sealFor(keys, ownerOf(of), about(of), await codec.encode(data, of)),
    decode: async (bytes, schemaVersion, of) => {
      const plain = await openFor(keys, ownerOf(of), about(of, schemaVersion), bytes)
      if (plain !== 'shredded') return await codec.decode(plain, schemaVersion, of)
      if (shredded !== undefined) return shredded(schemaVersion ?? 1)
      throw new WaybillError('NOT_FOUND', 'The data of this event was shredded, and nothing stands in for it.')
    },
  }
}

/** Keeps answers of commands sealed, with a key for each principal. One that does not open is one that was not kept. */
export function sealedResponses(keys: DataKeys): ResponseCodec {
  const owner = (principal: string): KeyOwner => ({ type: 'principal', id: principal })
  const aboutAnswer = (...parts: readonly string[]): string => JSON.stringify(['answer', ...parts])
  return {
    encode: async (json, { command, principal, requestId }) => {
      const about = aboutAnswer(command, principal, requestId)
      return (await sealFor(keys, owner(principal), about, Buffer.from(json))).toString('base64')
    },
    decode: async (text, { command, principal, requestId }) => {
      const about = aboutAnswer(command, principal, requestId)
      const plain = await openFor(keys, owner(principal), about, Buffer.from(text, 'base64'))
      return plain === 'shredded' ? undefined : plain.toString()
    },
  }
}

/** A byte that says how it was sealed, the key's id, and what was sealed. */
const format = 1
const keyIdBytes = 16

async function sealFor(keys: DataKeys, owner: KeyOwner, about: string, plain: Uint8Array): Promise<Buffer> {
  const { id, key } = await keys.current(owner)
  return Buffer.concat([Buffer.from([format]), Buffer.from(id.replaceAll('-', ''), 'hex'), seal(plain, { key, about })])
}

async function openFor(keys: DataKeys, owner: KeyOwner, about: string, bytes: Uint8Array): Promise<Buffer | 'shredded'> {
  if (bytes[0] !== format || bytes.length < 1 + keyIdBytes)
    throw new WaybillError('CORRUPT', 'This is not sealed. Was it written before encryption was turned on?')
  const hex = Buffer.from(bytes.subarray(1, 1 + keyIdBytes)).toString('hex')
  const id = hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5')
  const found = await keys.find(id, owner)
  return found === 'shredded' ? found : open(bytes.subarray(1 + keyIdBytes), { key: found.key, about })
}

function ownerOf(of: EventContext | undefined): KeyOwner {
  if (of === undefined) throw new WaybillError('INVALID_OPTION', 'A sealed codec needs to know of which event its data is.')
  return { type: of.aggregateType, id: of.aggregateId }
}

function about(of: EventContext | undefined, schemaVersion: number | undefined = of?.schemaVersion): string {
  return JSON.stringify(['event', of?.aggregateType, of?.aggregateId, of?.eventType, schemaVersion])
}
