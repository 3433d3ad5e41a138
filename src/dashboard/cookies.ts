/**
 * The cookies of a request.
 */

/** The value of a cookie as it was sent; the first, if there are several of one name. */
export function cookieOf(request: Request, name: string): string | undefined {
  for (const pair of request.headers.get('cookie')?.split(';') ?? []) {
    const [key, value] = pair.trim().split('=', 2)
    if (key === name) return value
  }
  return undefined
}
