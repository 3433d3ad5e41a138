/**
 * The demo's page server as a hostile page in the same browser meets it.
 */
import { readFile } from 'node:fs/promises'
import { request } from 'node:http'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startPageServer, type PageServer } from '../../examples/demo/page-server.ts'

const pressed: string[] = []
let page: PageServer

beforeAll(async () => {
  page = await startPageServer(
    {
      snapshot: () => ({ verdict: 'ok' }),
      journey: async (eventId) => (eventId.startsWith('0') ? { eventId } : undefined),
      act: (action) => action === 'kill-relay' && pressed.push(action) > 0,
    },
    0,
  )
})
afterAll(() => page.stop())

/** `fetch` does not let a caller lie about Host and Origin; a client of its own does. */
function send(method: string, path: string, headers: Record<string, string>): Promise<number | undefined> {
  return new Promise((done, failed) => {
    const asked = request(`${page.url}${path}`, { method, headers }, (response) => {
      response.resume()
      done(response.statusCode)
    })
    asked.once('error', failed)
    asked.end()
  })
}

test('its own page may press a button; another site, or nobody in particular, may not', async () => {
  expect(await send('POST', '/actions/kill-relay', { origin: page.url })).toBe(202)
  expect(pressed).toEqual(['kill-relay'])
  expect(await send('POST', '/actions/kill-relay', { origin: 'https://elsewhere.example' })).toBe(403)
  expect(await send('POST', '/actions/kill-relay', { origin: 'null' })).toBe(403)
  expect(await send('POST', '/actions/kill-relay', {})).toBe(403)
  expect(pressed).toEqual(['kill-relay'])
  expect(await send('POST', '/actions/kill-everything', { origin: page.url })).toBe(404)
})

test('a name that leads here from outside is refused, so that nobody reads the page by rebinding it', async () => {
  expect(await send('GET', '/', { host: 'elsewhere.example' })).toBe(403)
  expect(await send('GET', '/events', { host: `elsewhere.example:${page.port}` })).toBe(403)
  const host = `elsewhere.example:${page.port}`
  expect(await send('POST', '/actions/kill-relay', { host, origin: `http://${host}` })).toBe(403)
  expect(await send('GET', '/', { host: `localhost:${page.port}` })).toBe(200)
})

test('every file comes with a policy that allows nothing but the page itself, and nothing else is served', async () => {
  for (const path of ['/', '/style.css', '/page.js', '/chart.js', '/journey.js', '/elements.js', '/icon.svg']) {
    const response = await fetch(`${page.url}${path}`)
    expect(response.status).toBe(200)
    expect(response.headers.get('content-security-policy')).toMatch(/^default-src 'self';/)
    const text = await response.text()
    expect(text).not.toMatch(/<script(?![^>]*\bsrc=)|<style|\sstyle=|\son[a-z]+=/i)
  }
  expect((await fetch(`${page.url}/../demo.ts`)).status).toBe(404)
  expect((await fetch(`${page.url}/%2e%2e%2fdemo.ts`)).status).toBe(404)
})

test('the journey of an event is asked for by its id, and by nothing else', async () => {
  const journey = async (id: string): Promise<number> => (await fetch(`${page.url}/journey?id=${encodeURIComponent(id)}`)).status
  expect(await journey('01234567-89ab-7def-8123-456789abcdef')).toBe(200)
  expect(await journey('f1234567-89ab-7def-8123-456789abcdef')).toBe(404)
  expect(await journey("0' or 1=1")).toBe(404)
})

test('the slider goes as far as the option', async () => {
  const option = /^\| `--rate .*, (?<least>\d+) to (?<most>[\d,]+) \[/m.exec(
    await readFile('docs/guides/demo.md', 'utf8'),
  )?.groups
  const slider = /id="rate"[^>]* min="(\d+)" max="(\d+)" step="1"/.exec(await (await fetch(page.url)).text())
  expect(slider?.slice(1)).toEqual([option?.['least'], option?.['most']?.replaceAll(',', '')])
})
