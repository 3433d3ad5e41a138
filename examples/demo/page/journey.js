/**
 * The journey of one event: chosen from the newest ones or by its id, and asked for again until it has arrived.
 */
import { byId, duration, element } from './elements.js'

const askAgainMs = 500

export function createJourney() {
  const list = byId('events')
  const hold = byId('hold')
  let shown = 0
  hold.addEventListener('click', () => {
    hold.setAttribute('aria-pressed', String(hold.getAttribute('aria-pressed') !== 'true'))
  })
  byId('find').addEventListener('submit', (event) => {
    event.preventDefault()
    void show(byId('event-id').value.trim())
  })

  async function show(eventId) {
    const turn = (shown += 1)
    for (;;) {
      const journey = await ask(eventId)
      if (turn !== shown) return
      byId('journey').replaceChildren(...draw(journey))
      if (journey.error !== undefined || journey.steps.every(({ isDone }) => isDone)) return
      await new Promise((done) => setTimeout(done, askAgainMs))
    }
  }

  return {
    /** The newest events, unless the reader holds the list or is about to press one of them. */
    list(events) {
      const isHeld =
        hold.getAttribute('aria-pressed') === 'true' || list.contains(document.activeElement) || list.matches(':hover')
      if (isHeld) return
      list.replaceChildren(
        ...events.map(({ eventId, what, version }) => {
          const button = element('button', { text: `${what} · v${version}` })
          button.type = 'button'
          button.addEventListener('click', () => {
            byId('event-id').value = eventId
            void show(eventId)
          })
          return element('li', {}, button)
        }),
      )
    },
  }
}

async function ask(eventId) {
  try {
    const response = await fetch(`/journey?id=${encodeURIComponent(eventId)}`)
    return await response.json()
  } catch {
    return { error: 'The demo does not answer.' }
  }
}

function draw({ error, eventId, title, steps }) {
  if (error !== undefined) return [element('p', { class: 'about', text: error })]
  const startMs = steps[0].atMs
  const items = steps.map((step) => {
    const after = step.atMs === undefined || step.atMs === startMs ? '' : `+${duration(step.atMs - startMs)}`
    return element(
      'li',
      { class: step.isDone ? 'done' : '' },
      element('strong', { text: step.place }),
      element('span', { class: 'after', text: after }),
      element('small', { text: step.details }),
    )
  })
  return [
    element('p', { class: 'about', text: title }, element('code', { text: eventId })),
    element('ol', { class: 'journey' }, ...items),
  ]
}
