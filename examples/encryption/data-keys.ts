/**
 * A data key for each owner (an aggregate, or who sends commands), kept wrapped by a key-encryption key that never leaves its port.
 *
 * Shredding an owner deletes its data key and keeps the row that says so: what was sealed with it can be read by nobody any more, and
 * nothing new is sealed for that owner. A key that is not there is another matter: it is tried again.
 */
import { createCipheriv, createDecipheriv, randomBytes, randomUUID } from 'node:crypto'
import { WaybillError, type Queryable } from 'waybill'

/** The part of a key service (AWS KMS, Google Cloud KMS, Vault) that is used. `about` must be the same both times. */
export interface KeyPort {
  wrap(key: Buffer, about: string): Promise<Buffer>
  unwrap(wrapped: Buffer, about: string): Promise<Buffer>
}

/** Whose data it is. */
export interface KeyOwner {
  readonly type: string
  readonly id: string
}

export interface DataKey {
  readonly id: string
  readonly key: Buffer
}

export interface DataKeys {
  /** The owner's key, made at the first use. */
  current(owner: KeyOwner): Promise<DataKey>
  /** The owner's key of this id, or that it was shredded. */
  find(id: string, owner: KeyOwner): Promise<DataKey | 'shredded'>
  /** Deletes the owner's key, in the transaction of whatever else is deleted. */
  shred(tx: Queryable, owner: KeyOwner): Promise<void>
}

export const dataKeyTable = `
  create table if not exists public.data_key (
    id          uuid primary key,
    owner_type  text not null,
    owner_id    text not null,
    wrapped     bytea,
    shredded_at timestamptz,
    unique (owner_type, owner_id),
    check ((wrapped is null) = (shredded_at is not null))
  )`

/** Keys in a table. Its connections are apart from those of the transactions that wait for it: give it a pool of its own. */
export function dataKeys({ db, port }: { readonly db: Queryable; readonly port: KeyPort }): DataKeys {
  const read = async (owner: KeyOwner): Promise<KeyRow | undefined> => {
    const text = 'select id, wrapped from public.data_key where owner_type = $1 and owner_id = $2'
    return (await reach(() => db.query(text, [owner.type, owner.id]))).rows[0] as KeyRow | undefined
  }
  const open = async ({ id, wrapped }: KeyRow, owner: KeyOwner): Promise<DataKey | 'shredded'> =>
    wrapped === null ? 'shredded' : { id, key: await port.unwrap(wrapped, aboutKey(id, owner)) }
  return {
    current: async (owner) => {
      let row = await read(owner)
      if (row === undefined) {
        const id = randomUUID()
        const wrapped = await port.wrap(randomBytes(32), aboutKey(id, owner))
        const text = `insert into public.data_key (id, owner_type, owner_id, wrapped) values ($1, $2, $3, $4) on conflict do nothing`
        await reach(() => db.query(text, [id, owner.type, owner.id, wrapped]))
        row = await read(owner)
      }
      const found = row === undefined ? 'shredded' : await open(row, owner)
      if (found === 'shredded')
        throw new WaybillError('INVALID_INPUT', `The data of ${owner.type} ${owner.id} was shredded: nothing more is kept of it.`)
      return found
    },
    find: async (id, owner) => {
      const row = await read(owner)
      if (row?.id === id) return await open(row, owner)
      throw new WaybillError('NOT_FOUND', `There is no data key ${id} here. Is this the table of the service that wrote?`, {
        retryable: true,
      })
    },
    shred: async (tx, owner) => {
      const text = `insert into public.data_key (id, owner_type, owner_id, shredded_at) values ($1, $2, $3, now())
        on conflict (owner_type, owner_id) do update set wrapped = null, shredded_at = now()`
      await tx.query(text, [randomUUID(), owner.type, owner.id])
    },
  }
}

interface KeyRow {
  readonly id: string
  readonly wrapped: Buffer | null
}

/** A port with the key-encryption key in this process: for tests, and to read what a real one has to do. */
export function localKeyPort(key: Buffer): KeyPort {
  return {
    wrap: async (dataKey, about) => seal(dataKey, { key, about }),
    unwrap: async (wrapped, about) => open(wrapped, { key, about }),
  }
}

interface Sealing {
  readonly key: Buffer
  /** What the text is bound to: it opens only where this is the same. */
  readonly about: string
}

/** AES-256-GCM: a nonce of 12 bytes, a tag of 16, and the text. */
export function seal(plain: Uint8Array, { key, about }: Sealing): Buffer {
  const nonce = randomBytes(12)
  const cipher = createCipheriv('aes-256-gcm', key, nonce).setAAD(Buffer.from(about))
  const text = Buffer.concat([cipher.update(plain), cipher.final()])
  return Buffer.concat([nonce, cipher.getAuthTag(), text])
}

/** CORRUPT unless it was sealed with this key about the same. */
export function open(sealed: Uint8Array, { key, about }: Sealing): Buffer {
  try {
    const decipher = createDecipheriv('aes-256-gcm', key, sealed.subarray(0, 12), { authTagLength: 16 }).setAAD(
      Buffer.from(about),
    )
    decipher.setAuthTag(sealed.subarray(12, 28))
    return Buffer.concat([decipher.update(sealed.subarray(28)), decipher.final()])
  } catch (cause) {
    throw new WaybillError('CORRUPT', 'What was sealed does not open: it was changed or moved, or the key is another.', { cause })
  }
}

function aboutKey(id: string, { type, id: ownerId }: KeyOwner): string {
  return JSON.stringify(['data key', id, type, ownerId])
}

async function reach<Result>(ask: () => Promise<Result>): Promise<Result> {
  try {
    return await ask()
  } catch (cause) {
    throw new WaybillError('UNAVAILABLE', 'The data keys cannot be reached. Try again.', { retryable: true, cause })
  }
}
