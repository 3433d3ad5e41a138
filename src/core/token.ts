/**
 * Consistency tokens: what a writer gets and a reader shows, to never see anything older than that write.
 *
 * To its holder a token is opaque text, safe in a URL or a header. Inside are the aggregate and its version. With a
 * secret it is signed (HMAC-SHA-256), so that nobody can make readers wait for versions that do not exist.
 */
import { createHmac } from 'node:crypto'
import { WaybillError } from './errors.ts'
import { isEqualSecret } from './is-equal-secret.ts'
import { refuseUnknown } from './options.ts'
import { parseVersion, type Version } from './version.ts'

/** What a token says: this aggregate had this version when the write committed. */
export interface AggregateVersion {
  readonly aggregateType: string
  readonly aggregateId: string
  readonly version: Version
}

export interface Tokens {
  /** The opaque text of an aggregate's version. */
  encode(at: AggregateVersion): string
  /** What the token says, or INVALID_INPUT if it is malformed, forged or not signed with one of our secrets. */
  decode(token: string): AggregateVersion
}

export interface TokenOptions {
  /** Signs tokens. The first secret signs, all verify: put a new one in front to rotate. @default unsigned */
  readonly secrets?: readonly string[]
}

/** The header that carries the consistency token, both ways. */
export const tokenHeader = 'waybill-token'

const longestToken = 4096

/** The maker and reader of tokens. All services that exchange tokens need the same secrets. */
export function createTokens(options: TokenOptions = {}): Tokens {
  refuseUnknown('tokens', options, ['secrets'])
  const secrets = checkSecrets(options.secrets)
  return {
    encode: ({ aggregateType, aggregateId, version }) => {
      const body = Buffer.from(JSON.stringify([aggregateType, aggregateId, String(parseVersion(version))])).toString('base64url')
      const secret = secrets[0]
      const token = secret === undefined ? `w1.${body}` : `w1.${body}.${sign(body, secret)}`
      if (token.length > longestToken) throw tooLong(aggregateType, token.length)
      return token
    },
    decode: (token) => {
      const [format, body, signature, ...rest] = typeof token === 'string' && token.length <= longestToken ? token.split('.') : []
      if (format !== 'w1' || body === undefined || rest.length > 0) throw invalid('it is not one of ours')
      if (secrets.length > 0 && !secrets.some((secret) => verifies(body, signature, secret)))
        throw invalid('its signature is missing or wrong')
      return parseBody(body)
    },
  }
}

/** A list that came out empty is refused: whoever wrote it believes that tokens are signed. */
function checkSecrets(secrets: readonly string[] | undefined): readonly string[] {
  if (secrets === undefined) return []
  if (!Array.isArray(secrets) || secrets.length === 0) {
    throw new WaybillError(
      'INVALID_OPTION',
      'tokens.secrets: must be a list of at least one secret; leave it out for unsigned tokens.',
    )
  }
  if (secrets.some((secret) => typeof secret !== 'string' || secret.length < 16)) {
    throw new WaybillError(
      'INVALID_OPTION',
      'tokens.secrets: a secret must have at least 16 characters; use 32 random bytes as base64.',
    )
  }
  return [...secrets]
}

function parseBody(body: string): AggregateVersion {
  let parts: unknown
  try {
    parts = JSON.parse(Buffer.from(body, 'base64url').toString('utf8'))
  } catch (cause) {
    throw invalid('it cannot be read', cause)
  }
  if (!Array.isArray(parts) || parts.length !== 3) throw invalid('it cannot be read')
  const [aggregateType, aggregateId, version] = parts as unknown[]
  if (typeof aggregateType !== 'string' || typeof aggregateId !== 'string') throw invalid('it names no aggregate')
  return { aggregateType, aggregateId, version: parseVersion(version, 'consistency token') }
}

function sign(body: string, secret: string): string {
  return createHmac('sha256', secret).update(`w1.${body}`).digest('base64url')
}

function verifies(body: string, signature: string | undefined, secret: string): boolean {
  return signature !== undefined && isEqualSecret(signature, sign(body, secret))
}

function tooLong(aggregateType: string, length: number): WaybillError {
  return new WaybillError(
    'INVALID_INPUT',
    `The consistency token of ${aggregateType} would have ${length} characters, more than ${longestToken}. Use a shorter aggregate id.`,
  )
}

function invalid(why: string, cause?: unknown): WaybillError {
  return new WaybillError('INVALID_INPUT', `Consistency token refused: ${why}. Pass the token as the write returned it.`, {
    cause,
  })
}
