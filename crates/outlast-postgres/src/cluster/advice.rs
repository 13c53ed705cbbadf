//! What to tell a person whose machine has no fitting server.

use std::ops::RangeInclusive;

use super::VERSIONS;

pub(super) fn spell(wanted: &RangeInclusive<u32>) -> String {
    if wanted.start() == wanted.end() {
        wanted.start().to_string()
    } else {
        format!("{} to {}", wanted.start(), wanted.end())
    }
}

/// The command a person types. `major` only where a data folder asks for one version.
pub(super) fn install_command(os: &str, os_release: &str, major: Option<u32>) -> String {
    if os == "macos" {
        return format!(
            "brew install postgresql@{}",
            major.unwrap_or(*VERSIONS.end())
        );
    }
    let family: Vec<&str> = os_release
        .lines()
        .filter_map(|line| {
            line.strip_prefix("ID=")
                .or_else(|| line.strip_prefix("ID_LIKE="))
        })
        .flat_map(|value| value.trim_matches('"').split_whitespace())
        .collect();
    let is = |name: &str| family.iter().any(|id| id.starts_with(name));
    let number =
        |name: &str| major.map_or_else(|| name.to_owned(), |major| format!("postgresql{major}"));
    if is("debian") || is("ubuntu") {
        major.map_or("sudo apt-get install postgresql".into(), |major| {
            format!("sudo apt-get install postgresql-{major}")
        })
    } else if is("fedora") || is("rhel") || is("centos") {
        format!("sudo dnf install {}-server", number("postgresql"))
    } else if is("suse") || is("opensuse") {
        format!("sudo zypper install {}-server", number("postgresql"))
    } else if is("alpine") {
        format!("apk add {}", number("postgresql"))
    } else if is("arch") {
        "sudo pacman -S postgresql".into()
    } else {
        format!(
            "the package of PostgreSQL {} server",
            major.map_or_else(|| spell(&VERSIONS), |major| major.to_string())
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_platform_is_told_its_own_command() {
        let told = [
            ("macos", "", None, "brew install postgresql@18"),
            (
                "linux",
                "ID=debian\n",
                Some(15),
                "sudo apt-get install postgresql-15",
            ),
            (
                "linux",
                "ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n",
                None,
                "sudo dnf install postgresql-server",
            ),
            (
                "linux",
                "ID=\"opensuse-leap\"\n",
                Some(16),
                "sudo zypper install postgresql16-server",
            ),
            ("linux", "ID=alpine\n", Some(17), "apk add postgresql17"),
            ("linux", "ID=arch\n", None, "sudo pacman -S postgresql"),
            (
                "linux",
                "",
                None,
                "the package of PostgreSQL 14 to 18 server",
            ),
        ];
        for (os, release, major, command) in told {
            assert_eq!(install_command(os, release, major), command);
        }
    }
}
